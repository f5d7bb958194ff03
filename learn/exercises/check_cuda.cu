// check_cuda.cu -- says whether a CUDA exercise is solved, as check.cpp does. On a GPU it times the kernel beside a
// copy of the same bytes; the software GPU of this repository's tests counts bytes and turns at shared memory instead.
//
// Solve the exercises before you read on, as in check.cpp.
#include "../cuda/ladder.h"
#include "exercises_cuda.h"
using std::string, std::to_string;

// The software GPU has this function: another order of blocks and warps. A real GPU needs none.
namespace ptx { __attribute__((weak)) void set_seed(uint64_t seed); }

static bool said = false;                               // the verdict
[[noreturn]] static void end(const string& verdict, int code) {
    said = true;
    puts(verdict.c_str());
    exit(code);
}
[[noreturn]] void not_written() { end("not written yet", 3); }

// Waits until all kernels have ended, or ends with the error of one.
static void wait() {
    for (const cudaError_t error : {cudaGetLastError(), cudaDeviceSynchronize()})
        if (error == cudaErrorInvalidPtx) end("NO VERDICT: the software GPU lacks this instruction", 77);
        else if (error != cudaSuccess) end(string("WRONG: CUDA: ") + cudaGetErrorString(error), 2);
}

// Compares a result with the one wanted.
static void compare(const string& what, const Floats& got, const Floats& want, float tolerance) {
    for (size_t i = 0; i < want.size(); i++)
        if (!(std::fabs(got[i] - want[i]) <= tolerance)) {
            char text[100];
            snprintf(text, sizeof text, ": number %zu is %.9g, want %.9g", i, double(got[i]), double(want[i]));
            end("WRONG: " + what + text, 2);
        }
}

// Measures a kernel that has to move `bytes`, and ends with the verdict.
[[noreturn]] static void measure(Ladder& ladder, double bytes, const char* compared, const auto& run) {
    double moved = 0, issued = 0, turns = 0;
    if (soft_gpu_section) {
        ladder.bytes = bytes;
        ladder.elements = bytes / 8;
        soft_gpu_section("exercise", UINT64_MAX, bytes, 0, ladder.elements);
        run();
        wait();
        const string said = ladder.counters("exercise");
        sscanf(said.c_str(), "bytes %lf x issued %lf shared %lf", &moved, &issued, &turns);
        puts(said.c_str());
    } else {
        const Array<char> from(size_t(bytes / 2)), to(size_t(bytes / 2));
        const auto copy = [&] {
            check(cudaMemcpyAsync(to.at, from.at, size_t(bytes / 2), cudaMemcpyDeviceToDevice, nullptr));
        };
        const auto milliseconds = [&](const auto& f) { return atof(ladder.time_of(f).c_str()); };
        const double times = milliseconds(run) / milliseconds(copy);
        printf("%.2f times as long as a copy\n", times);
        moved = times / 1.2;                            // a copy takes the least time, and 1.2 times that is good
    }
    if (moved < 0.1) end("RIGHT, BUT SLOW: no kernel moves the numbers", 1);
    if (moved > 1.05) end("RIGHT, BUT SLOW: it moves more than 1.05 times the bytes, or too few at a time", 1);
    if (turns > 1.05) end("RIGHT, BUT SLOW: threads of a warp wait for the same bank of shared memory", 1);
    end(string("RIGHT: ") + compared, 0);
}

static void check_block_sum(Ladder&) {
    string other_order;
    for (const int blocks : {5, 1, 67})
        for (const uint32_t seed : {1, 2, 3}) {
            Floats x = numbers(blocks * 256, seed), want;
            for (size_t i = 0; i < x.size(); i += seed) x[i] *= seed < 3 ? 1000 : i % 7 ? 1 : 0;
            for (size_t begin = 0; begin < x.size(); begin += 256) {
                Floats s(x.begin() + long(begin), x.begin() + long(begin) + 256);
                for (size_t half = 128; half > 0; half /= 2)
                    for (size_t t = 0; t < half; t++) s[t] += s[t + half];
                want.push_back(s[0]);
            }
            const Array<float> from = x;
            Floats first;
            for (int run = 0; run < 3; run++) {
                if (ptx::set_seed) ptx::set_seed(seed + run);
                Array<float> sums(want.size());
                block_sums(sums, from, blocks);
                wait();
                const Floats got = sums.values();
                compare(to_string(blocks) + " blocks", got, want, seed < 3 ? 0.1f : 1e-4f);
                if (first.empty()) first = got;
                if (first != got) end("WRONG: two runs have sums with other bits: the order is not fixed", 2);
                if (got != want) other_order = "RIGHT IN ANOTHER ORDER OR PRECISION: 1, 5 and 67 blocks, sums are near";
            }
        }
    if (!other_order.empty()) end(other_order, 1);
    end("RIGHT: all bits of the sums of 1, 5 and 67 blocks, three times each", 0);
}

static void check_tiles(Ladder& ladder) {
    for (const auto& [M, N, K] : {std::tuple(16, 16, 16), {32, 48, 80}, {96, 16, 32}, {16, 64, 800}, {144, 160, 128}}) {
        const Floats a = numbers(M * K, 1), b = numbers(N * K, 2);
        Floats want;
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++) {
                double sum = 0;
                for (int k = 0; k < K; k++) sum += double(a[m * K + k]) * double(b[n * K + k]);
                want.push_back(float(sum));
            }
        const Array<float> A = a, B = b;
        Array<float> out(want.size());
        product(out, A, B, M, N, K);
        wait();
        compare("a, which is an input", A.values(), a, 0);
        compare("M = " + to_string(M) + ", N = " + to_string(N) + ", K = " + to_string(K), out.values(), want, 3e-5f);
        const char* const compared = "five shapes of 16 to 160 rows and columns, sums of 16 to 800 products";
        if (M < 144) continue;
        if (!soft_gpu_section) end(string("RIGHT: ") + compared, 0);
        measure(ladder, 4.0 * (M * K * (N / 16) + N * K * (M / 16) + M * N), compared,
                [&] { product(out, A, B, M, N, K); });
    }
}

static void check_transpose(Ladder& ladder) {
    for (const auto& [rows, cols] : {std::pair(32, 32), {64, 96}, {96, 64}, {544, 32}, {32, 256},
                                     {SMALL ? 256 : 4096, 512}}) {
        const Floats in = numbers(rows * cols, 1);
        Floats want(in.size());
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < cols; c++) want[c * rows + r] = in[r * cols + c];
        const Array<float> from = in;
        Array<float> to(in.size());
        transpose(to, from, rows, cols);
        wait();
        compare("in, which is an input", from.values(), in, 0);
        compare(to_string(rows) + " x " + to_string(cols), to.values(), want, 0);
        const auto again = [&] { transpose(to, from, rows, cols); };
        if (cols == 512) measure(ladder, 8.0 * rows * cols, "all numbers of six matrices, wide and tall", again);
    }
}

static void check_softmax_rows(Ladder& ladder) {
    for (const auto& [N, C, most] : {std::tuple(1, 32, 0), {5, 96, 0}, {3, 1024, 0}, {7, 64, -3000000},
                                     {4, 192, 0}, {2, 608, 0}, {401, 32, 500}, {SMALL ? 256 : 8192, 768, 0}}) {
        Floats x = numbers(N * C, 1), want(x.size());
        for (float& value : x) value = value * 100 + float(most);
        if (most == 0) x[1] = 0;
        for (int n = 0; n < N; n++) {
            const float* const row = x.data() + n * C;
            const double largest = *std::max_element(row, row + C);
            double sum = 0;
            for (int c = 0; c < C; c++) sum += std::exp(row[c] - largest);
            for (int c = 0; c < C; c++) want[n * C + c] = float(std::exp(row[c] - largest) / sum);
        }
        const Array<float> from = x;
        Array<float> to(x.size());
        softmax_rows(to, from, N, C);
        wait();
        compare("x, which is an input", from.values(), x, 0);
        compare("N = " + to_string(N) + ", C = " + to_string(C) + ", x of " + to_string(most) +
                " +- 100", to.values(), want, 1e-6f);
        if (C != 768) continue;
        measure(ladder, 8.0 * N * C, "rows of 32 to 1,024 numbers from -3,000,100 to 600, to 1e-6",
                [&] { softmax_rows(to, from, N, C); });
    }
}

int main(int, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    atexit([] {
        if (said) return;
        puts("WRONG: it ends the program");
        _Exit(2);
    });
    Ladder ladder(argv[1], 0, 0, 0);
    const std::map<string, void (*)(Ladder&)> checks = {{"block_sum", check_block_sum}, {"tiles", check_tiles},
        {"transpose", check_transpose}, {"softmax_rows", check_softmax_rows}};
    checks.at(argv[1])(ladder);
}
