// check_cuda.cu -- says whether a CUDA exercise is solved, as check.cpp does. On a GPU it times the kernel beside a
// copy of the same bytes; the software GPU of this repository's tests counts bytes and turns at shared memory instead.
#include "../cuda/ladder.h"
#include "exercises_cuda.h"

[[noreturn]] void not_written() {
    puts("not written yet");
    exit(3);
}

[[noreturn]] static void end(const std::string& verdict, int code) {
    puts(verdict.c_str());
    exit(code);
}

// Compares a result with the one wanted.
static void compare(const std::string& what, const std::vector<float>& got, const std::vector<float>& want,
                    float tolerance) {
    for (size_t i = 0; i < want.size(); i++)
        if (!(std::fabs(got[i] - want[i]) <= tolerance))
            end("WRONG: " + what + ": number " + std::to_string(i) + " is " + std::to_string(got[i]) + ", want " +
                std::to_string(want[i]), 2);
}

// Measures a kernel that has to move `bytes`, and ends with the verdict.
[[noreturn]] static void measure(Ladder& ladder, double bytes, const std::function<void()>& run) {
    double moved = 0, issued = 0, turns = 0;
    if (soft_gpu_section) {
        ladder.bytes = bytes;
        ladder.elements = bytes / 8;
        soft_gpu_section("exercise", UINT64_MAX, bytes, 0, ladder.elements);
        run();
        check(cudaDeviceSynchronize());
        const std::string said = ladder.counters("exercise");
        sscanf(said.c_str(), "bytes %lf x issued %lf shared %lf", &moved, &issued, &turns);
        puts(said.c_str());
    } else {
        const Array<char> from(size_t(bytes / 2)), to(size_t(bytes / 2));
        const auto copy = [&] {
            check(cudaMemcpyAsync(to.at, from.at, size_t(bytes / 2), cudaMemcpyDeviceToDevice, nullptr));
        };
        const auto milliseconds = [&](const std::function<void()>& f) { return atof(ladder.time_of(f).c_str()); };
        const double times = milliseconds(run) / milliseconds(copy);
        printf("%.2f times as long as a copy\n", times);
        moved = times / 1.2;                            // a copy takes the least time, and 1.2 times that is good
    }
    if (moved > 1.05) end("RIGHT, BUT SLOW: it moves more than 1.05 times the bytes, or too few at a time", 1);
    if (turns > 1.05) end("RIGHT, BUT SLOW: threads of a warp wait for the same bank of shared memory", 1);
    end("RIGHT", 0);
}

static void check_transpose(Ladder& ladder) {
    for (const auto& [rows, cols] : {std::pair(32, 32), {64, 96}, {SMALL ? 256 : 4096, 512}}) {
        const std::vector<float> in = numbers(size_t(rows * cols), 1);
        std::vector<float> want(in.size());
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < cols; c++) want[size_t(c * rows + r)] = in[size_t(r * cols + c)];
        const Array<float> from = in;
        Array<float> to(in.size());
        transpose(to, from, rows, cols);
        check(cudaGetLastError());
        check(cudaDeviceSynchronize());
        compare(std::to_string(rows) + " x " + std::to_string(cols), to.values(), want, 0);
        if (rows >= 256) measure(ladder, 8.0 * rows * cols, [&] { transpose(to, from, rows, cols); });
    }
}

static void check_softmax_rows(Ladder& ladder) {
    for (const auto& [N, C] : {std::pair(1, 32), {5, 96}, {3, 1024}, {SMALL ? 256 : 8192, 768}}) {
        std::vector<float> x = numbers(size_t(N * C), 1), want(x.size());
        for (float& value : x) value *= 100;
        for (int n = 0; n < N; n++) {
            const float* const row = x.data() + n * C;
            double sum = 0;
            for (int c = 0; c < C; c++) sum += std::exp(double(row[c]) - *std::max_element(row, row + C));
            for (int c = 0; c < C; c++)
                want[size_t(n * C + c)] = float(std::exp(double(row[c]) - *std::max_element(row, row + C)) / sum);
        }
        const Array<float> from = x;
        Array<float> to(x.size());
        softmax_rows(to, from, N, C);
        check(cudaGetLastError());
        check(cudaDeviceSynchronize());
        compare("N = " + std::to_string(N) + ", C = " + std::to_string(C), to.values(), want, 1e-6f);
        if (N >= 256) measure(ladder, 8.0 * N * C, [&] { softmax_rows(to, from, N, C); });
    }
}

int main(int, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    Ladder ladder(argv[1], 0, 0, 0);
    argv[1] == std::string("transpose") ? check_transpose(ladder) : check_softmax_rows(ladder);
}
