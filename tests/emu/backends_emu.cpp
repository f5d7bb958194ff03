// backends_emu.cpp -- the backends of train_gpt_emu: its GPU is the emulator.
#include "backends.h"

#define DECLARE(ns) namespace ns { int device_count(); bool storage_is_fast(); int train(Options, Comm*, Run); int sample(Options, Comm*); int eval(Options, Comm*); int selftest(Options, Comm*); }
DECLARE(emu)
DECLARE(cpu)
DECLARE(cpu16)

const Backend backends[] = {
    {"emu", true, "bf16", emu::device_count, emu::storage_is_fast, emu::train, emu::sample, emu::eval, emu::selftest},
    {"cpu16", false, "bf16", cpu16::device_count, cpu16::storage_is_fast, cpu16::train, cpu16::sample, cpu16::eval, cpu16::selftest},
    {"cpu", false, "fp32", cpu::device_count, cpu::storage_is_fast, cpu::train, cpu::sample, cpu::eval, cpu::selftest},
    {},
};
