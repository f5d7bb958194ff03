// backends_emu.cpp -- the backends of train_gpt_emu: its GPU is the emulator.
#include "backends.h"

DECLARE_BACKEND(emu)
DECLARE_BACKEND(cpu16)
DECLARE_BACKEND(cpu)

const Backend backends[] = {BACKEND_ROW(emu, true, "bf16"), BACKEND_ROW(cpu16, false, "bf16"), BACKEND_ROW(cpu, false, "fp32"), {}};
