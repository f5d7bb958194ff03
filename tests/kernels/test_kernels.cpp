// test_kernels.cpp -- every operation of a backend against the specification (kernel_cases.h says what each case
// checks).
//
// Sizes are odd on purpose: one row, one more than a power of two, channels that fill no vector of 16 floats.
// A CPU with fused multiply-add has the specification's bits. For other devices tolerances are k roundings of a float
// (2^-23) at the size of the largest value; a sum of n random terms loses about sqrt(n) / 2 of them.
#include "tests/kernels/optimizer_cases.h"
#include <atomic>
#include <cfenv>
#include <fstream>
#include <latch>
#include <numeric>
#include <thread>
#include "kernels/cpu/runtime.h"
#include "tests/models/small_shape.h"

static const float kRates[] = {0, 0.3f};

static double root(double n) { return std::sqrt(n); }
static std::vector<float> tokens_of(size_t n, int V) {
    std::vector<float> tokens = integers(n, 0, V - 1);
    tokens[n / 2] = float(V - 1);
    return tokens;
}

// ---------------------------------------------------------------------------------------------- the checker itself

static int wrong_way;
static int wrong_calls;
static void wrong(BACKEND::floatX* out, const BACKEND::floatX* inp, size_t n, const Dropout& drop, Stream stream) {
    BACKEND::dropout_backward(out, inp, n - (wrong_way == 1 ? 8 : 0), drop, stream);
    BACKEND::stream_sync(stream);
    const auto store = [&](const BACKEND::floatX* at, float value) {
        BACKEND::floatX x;
        BACKEND::store_floats(&x, &value, 1);
        BACKEND::copy_to_device(const_cast<BACKEND::floatX*>(at), &x, sizeof x, stream);
        BACKEND::stream_sync(stream);
    };
    wrong_calls++;
    if (wrong_way == 2) store(out + 7, kHalf ? 1.1f : 1.00001f);  // of values 1
    if (wrong_way == 3) store(out + n, 1);
    if (wrong_way == 4) store(out - 1, 1);
    if (wrong_way == 5) store(inp + 3, 5);
    if (wrong_way == 6) store(out, wrong_calls == 3 ? 2 : 1);  // the third call differs
}

TEST(negative_control) {
    const char* expected[] = {
        "", "array 1[96]: got nan", "array 1[7]", "wrote outside", "wrote outside", "input changed", "other bits"};
    for (int way = 0; way < 7; way++) {
        Mask none(0);
        Case c("wrong");
        Tensor &out = c.out(kX, 104), &inp = c.in(kX, std::vector<float>(104, 1));
        wrong_way = way;
        wrong_calls = 0;
        std::string message;
        try {
            c.run(SPEC::dropout_backward, wrong, out, inp, size_t(104), none);
            c.near(out, 8);
        } catch (const TestFailure& f) {
            message = f.message;
        }
        EXPECT(has(message, expected[way]) && message.empty() == (way == 0),
               "fault %d: got \"%s\", want \"%s\"", way, message.c_str(), expected[way]);
    }
}

// A CPU with fused multiply-add is held to every bit.
TEST(one_rounding_is_seen) {
    const std::string name = BACKEND::device_name();
    bool fma = false;
    for (const char* set : {" avx2,", " avx512,"}) fma |= has(name, set);
#if defined(__aarch64__)
    fma = !BACKEND::kOnGpu;
#endif
    EXPECT(Case::exact() == fma, "%s is held to %s bit for bit, or not", name.c_str(), SPEC::device_kind());
    Case c("wrong");
    Tensor& t = c.in(kFloat, {1, 2});
    t.want = {1, 2}, t.got = {1, 2 + 2 * kEps};
    const bool failed = fails([&] { c.near(t, 8); });
    EXPECT(failed == fma, "%s: a difference in the last bit %s", name.c_str(), failed ? "fails" : "passes");
}

TEST(negative_control_exact) {
    Case c("wrong");
    Tensor& t = c.in(kFloat, {1, 2});
    t.want = {1, 0}, t.got = {1, 0};
    c.same(t);
    for (const double bad : {-0.0, 1e-30, double(kNaN)}) {
        t.got[1] = bad;
        EXPECT(fails([&] { c.same(t); }), "%g passes for 0", bad);
    }
}

// ------------------------------------------------------------------------------------------------ memory and streams

// AddressSanitizer would end the program where malloc returns null, which is what this test asks for.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

TEST(memory) {
    for (const size_t bytes : {size_t(1), size_t(63), size_t(100000)}) {
        char* p = static_cast<char*>(BACKEND::device_alloc(bytes, "test"));
        EXPECT(reinterpret_cast<uintptr_t>(p) % 64 == 0, "%zu bytes at %p", bytes, (void*)p);
        const std::vector<char> ones(bytes, 1);
        const auto expect = [&](char value, const char* what) {
            std::vector<char> back(bytes, 2);
            BACKEND::copy_to_host(back.data(), p, bytes);
            EXPECT(back == std::vector<char>(bytes, value), "%s of %zu bytes: not %d", what, bytes, value);
        };
        expect(0, "device_alloc");
        BACKEND::copy_to_device(p, ones.data(), bytes);
        expect(1, "copy_to_device");
        BACKEND::device_zero(p, bytes);
        expect(0, "device_zero");
        BACKEND::device_free(p);
    }
    BACKEND::device_free(nullptr);
    expect_error(kExitOther, format("%zu", size_t(1) << 60),
                 [] { BACKEND::device_alloc(size_t(1) << 60, "the moon"); });
    expect_error(kExitOther, "the moon", [] { BACKEND::device_alloc(SIZE_MAX, "the moon"); });
}

TEST(floats) {
    const struct { float from, as_half; } known[] = {   // bf16 keeps 8 bits: 1 + 1/256 is a tie, and goes to even
        {0, 0}, {1, 1}, {-2.5f, -2.5f}, {1 + 1 / 256.0f, 1}, {1 + 3 / 256.0f, 1 + 4 / 256.0f},
        {1 + 1.01f / 256, 1 + 2 / 256.0f}, {-(1 + 3 / 256.0f), -(1 + 4 / 256.0f)}, {FLT_MAX, INFINITY},
        {-INFINITY, -INFINITY}};
    const auto through = [](float value) {
        BACKEND::floatX x;
        BACKEND::store_floats(&x, &value, 1);
        BACKEND::load_floats(&value, &x, 1);
        return value;
    };
    for (const auto& k : known) {
        const Row row(format("%.9g", k.from));
        EXPECT_EQ(through(k.from), kHalf ? k.as_half : k.from);
    }
    const float nan = std::bit_cast<float>(0x7f800001);  // its upper half alone would be an infinity
    EXPECT(std::isnan(through(nan)), "a NaN became %g", through(nan));
    const std::vector<float> many = integers(1003, -128, 127);  // what both types hold exactly
    EXPECT_EQ(BACKEND::Device<BACKEND::floatX>(many).host(), many);
}

// On a CPU a stream is a queue of calls.
TEST(streams_call) {
    if constexpr (BACKEND::kOnGpu) {
        SKIP("a GPU's streams call nothing");
    } else {
        const Stream a = BACKEND::stream_create(), b = BACKEND::stream_create();
        std::vector<int> list, want(300);
        std::iota(want.begin(), want.end(), 0);
        for (const int i : want) {  // one list without a lock: the streams must take turns
            const Stream stream = i / 100 % 2 ? b : a;
            if (i % 100 == 0) BACKEND::stream_wait(stream, i / 100 % 2 ? a : b);
            BACKEND::stream_call(stream, [&list, i] { list.push_back(i); });
        }
        BACKEND::stream_sync(a);
        EXPECT(list == want, "%zu of 300 calls, or out of order", list.size());
        expect_error(kExitPeer, "on purpose", [&] {
            BACKEND::stream_call(b, [] { die(kExitPeer, "on purpose"); });
            BACKEND::stream_sync(b);
        });
        BACKEND::stream_call(b, [&list] { list.push_back(6); });  // and the stream lives on
        BACKEND::stream_sync(b);
        EXPECT(list.size() == 301 && list.back() == 6, "the stream is dead after an error");
        BACKEND::stream_destroy(a);
        BACKEND::stream_destroy(b);
    }
}

// Two streams that take turns make Fibonacci's numbers.
TEST(streams_take_turns) {
    constexpr int kTurns = 30;
    const Stream streams[] = {BACKEND::stream_create(), BACKEND::stream_create()};
    const BACKEND::Device<float> ones(std::vector<float>(2 * kUnit, 1));
    float* const x = ones.at;
    const float* const terms[] = {x, x + kUnit};
    for (int i = 0; i < kTurns; i++) {
        BACKEND::stream_wait(streams[i % 2], streams[1 - i % 2]);
        BACKEND::tree_reduce(x + size_t(i % 2) * kUnit, nullptr, terms, 2, Tree::kNested, kUnit, streams[i % 2]);
    }
    float last;
    BACKEND::copy_to_host(&last, x + 2 * kUnit - 1, sizeof last, streams[(kTurns - 1) % 2]);
    EXPECT_EQ(last, 2178309);
    for (const Stream stream : streams) BACKEND::stream_destroy(stream);
}

// Whether operands and results below 1.2e-38 count as 0 in the calling thread.
static bool flushes_to_zero() {
    volatile float tiny = 1e-39f, large = 1e30f, least = FLT_MIN, half = 0.5f;
    const bool operand = tiny * large == 0, result = least * half == 0;
    EXPECT_EQ(operand, result);
    return operand;
}

TEST(denormal_numbers_count_as_zero) {
    EXPECT(flushes_to_zero(), "not in the main thread");
    bool in_thread = false;
    std::thread([&] { in_thread = flushes_to_zero(); }).join();
    EXPECT(in_thread, "not in a thread");
    for (const int threads : {0, 1, 2, 3}) {
        BACKEND::set_threads(threads);
        const int n = BACKEND::get_threads();
        EXPECT(n >= 1 && (n <= threads || threads == 0), "%d threads of %d", n, threads);
        if constexpr (!BACKEND::kOnGpu) {
            std::latch all(n);
            std::atomic<int> right = 0;
            BACKEND::parallel_for(n, [&](int) {
                all.arrive_and_wait();              // so each task has a thread of its own
                right += flushes_to_zero();
            });
            EXPECT(right == n, "in %d of %d threads of parallel_for only", right.load(), n);
        }
        EXPECT(flushes_to_zero(), "no more in the main thread after set_threads(%d)", threads);
    }
    std::fenv_t mode;                               // negative control
    std::fegetenv(&mode);
    std::fesetenv(FE_DFL_ENV);
    const bool by_default = flushes_to_zero();
    std::fesetenv(&mode);
    EXPECT(!by_default && flushes_to_zero(), "by default %d, afterwards %d", by_default, flushes_to_zero());
}

// --------------------------------------------------------------------------------------------- embedding, LayerNorm

struct Rows { int B, T, C; };
static const Rows kEmbeddings[] = {{1, 1, 8}, {2, 40, 8}, {3, 17, 24}, {2, 65, 136}, {5, 13, 768}};
static int vocabulary(const Rows& s) { return s.C == 8 ? 1900 : 65; }  // more tokens than any table a kernel may have

// What a query sees: the last `window` keys up to its own, in its document, which has 1 to 2 document - 1 tokens, or
// `document` if that is negative; 0: no such limit.
struct Sight { int window, document; };
static const Sight kSights[] = {{1, 0},   {20, 0},  {0, 20},  {0, -192}, {64, 0},
                                {130, 0}, {45, 60}, {0, -64}, {0, 1}};
// Returns the first key that each query sees    (B,T)
static std::vector<float> first_keys(const Sight& sight, int B, int T) {
    std::vector<float> first, lengths;
    for (int b = 0; b < B; b++) {
        lengths = integers(size_t(T), 1, std::max(1, 2 * sight.document - 1));
        int document = 0, next = sight.document ? 0 : T + 1;
        for (int t = 0, i = 0; t < T; t++) {
            if (t == next) document = t;
            if (t == next) next += sight.document < 0 ? -sight.document : int(lengths[size_t(i++)]);
            first.push_back(float(std::max(document, sight.window ? t + 1 - sight.window : 0)));
        }
    }
    return first;
}

// Calls test(s, V, rate, sight) for each size and each kind of documents; null: positions do not begin anew.
static const Sight kDocuments[] = {{0, 0}, {0, 1}, {0, -7}, {0, 10}, {5, 0}};
template <class F> static void each_embedding(const F& test) {
    for (const Rows& s : kEmbeddings)
        for (const float rate : kRates) {
            test(s, vocabulary(s), rate, nullptr);
            for (const Sight& sight : kDocuments) test(s, vocabulary(s), rate, &sight);
        }
}
static std::string text_of(const char* op, const Rows& s, float rate, const Sight* sight) {
    const std::string text = format("%s B=%d T=%d C=%d dropout=%g", op, s.B, s.T, s.C, rate);
    return text + (sight ? format(" documents %td", sight - kDocuments) : "");
}

TEST(embedding_forward) {
    std::vector<char> bits;
    each_embedding([&](const Rows& s, int V, float rate, const Sight* sight) {
        const size_t C = size_t(s.C), N = size_t(s.B) * size_t(s.T);
        Mask mask(rate);
        Tokens sizes = {s.B, s.T, s.C, mask};
        Case c(text_of("embedding_forward", s, rate, sight));
        Tensor &out = c.out(kX, N * C), &tokens = c.in(kInt, tokens_of(N, V));
        Tensor &wte = c.random(size_t(V + 15) * C), &wpe = c.random(size_t(s.T) * C);
        if (sight) sizes.begin = &c.in(kInt, first_keys(*sight, s.B, s.T));
        RUN(c, embedding_forward, out, tokens, wte, wpe, sizes);
        c.near(out, 2);  // k: one add and one division
        if (rate == 0) c.same(out);
        if (sight != kDocuments) return;
        bits = out.bits;                    // each sequence is one document
        sizes.begin = nullptr;
        RUN(c, embedding_forward, out, tokens, wte, wpe, sizes);
        EXPECT(out.bits == bits, "%s: other bits than without begin", c.what.c_str());
    });
}

// With "+=" the sum is complete, and rounded, before it is added: the result is, bit for bit, what was there + what "="
// gives. run(accumulate) computes `sums`, which begin as NaN, and holds them to the specification.
static void expect_one_add(const Case& c, const std::vector<Tensor*>& sums, const std::function<void(bool)>& run) {
    run(false);
    std::vector<std::vector<double>> complete;
    for (Tensor* t : sums) {
        complete.push_back(t->got);
        for (float& x : t->start = integers(t->start.size(), -4096, 4096)) x /= 1024;
        std::fill_n(t->start.begin(), t->start.size() / 2, 0.0f);
    }
    run(true);
    for (size_t k = 0; k < sums.size(); k++)
        for (size_t i = 0; i < complete[k].size(); i++) {
            const float before = sums[k]->start[i], sum = float(complete[k][i]);
            EXPECT(sums[k]->got[i] == double(before + sum), "%s: %s[%zu]: got %.9g, want %.9g + %.9g rounded once",
                   c.what.c_str(), sums[k]->name.c_str(), i, sums[k]->got[i], before, sum);
        }
}

static void embedding_backward_case(const Rows& s, int V, float rate, bool one_token, const Sight* sight = nullptr) {
    const size_t C = size_t(s.C), N = size_t(s.B) * size_t(s.T);
    const int maxT = s.T + (one_token ? 0 : 3);
    Mask mask(rate);
    Tokens sizes = {s.B, s.T, s.C, mask};
    Case c(text_of("embedding_backward", s, rate, sight) + format(" V=%d one_token=%d", V, one_token));
    c.once = N > 1000;
    Tensor &dwte = c.inout(kFloat, normal(size_t(V + 15) * C)), &dwpe = c.out(kFloat, size_t(maxT) * C);
    Tensor& dout = c.random(N * C);
    Tensor& tokens = c.in(kInt, one_token ? std::vector<float>(N, float(V - 1)) : tokens_of(N, V));
    if (sight) sizes.begin = &c.in(kInt, first_keys(*sight, s.B, s.T));
    const auto run = [&](bool accumulate) {
        RUN(c, embedding_backward, dwte, dwpe, dout, tokens, maxT, sizes, accumulate);
        const double rows = double(sight ? N : size_t(s.B));
        c.near(dwte, 4 + root(double(N)));  // k: up to N terms, and the division
        c.near(dwpe, 4 + root(rows));       // k: B terms, with begin up to N, and the division
        if (rate > 0) return;
        c.same(dwte);                       // the order of the additions is given
        if (sight) c.same(dwpe);
    };
    if (!sight) return expect_one_add(c, {&dwpe}, run);
    run(false);
    dwpe.starts_as(normal(dwpe.start.size()));
    run(true);
}
TEST(embedding_backward) {
    each_embedding([](const Rows& s, int V, float rate, const Sight* sight) {
        for (const bool one_token : {false, true}) embedding_backward_case(s, V, rate, one_token, sight);
    });
    // More rows than the CUDA backend's count_kernel takes in one turn. One token in 31, 32 and 33 rows: the backend
    // adds fewer than 32 rows of a token in another way.
    for (const Sight* sight : {(const Sight*)nullptr, &kDocuments[3]})
        embedding_backward_case({7, 1300, 8}, 1900, 0, false, sight);
    for (const int T : {31, 32, 33}) embedding_backward_case({1, T, 8}, 1, 0, true, &kDocuments[1]);
}

struct NormSize { int N, C; };
static const NormSize kNorms[] = {{1, 8},     {3, 24},   {65, 64}, {130, 136}, {3, 768}, {9, 264},
                              {65, 1600}, {5, 8192}, {7, 56},  {5, 576},   {3, 4104}, {5, 4096},
                              {3, 1280}};

// LayerNorm, and RMSNorm, where mean and bias are null.
struct NormForm { bool rms; float eps; };
static const NormForm kNormForms[] = {{false, 1e-5f}, {false, 0.25f}, {true, 1e-6f}, {true, 0.25f}};
static std::string text_of(const NormForm& form, const NormSize& s) {
    return format("%s eps=%g N=%d C=%d", form.rms ? "RMSNorm" : "LayerNorm", form.eps, s.N, s.C);
}

TEST(layernorm_forward) {
    for (const NormSize& s : kNorms)
        for (const NormForm& form : kNormForms)
            for (const double mean_of_inp : {0.0, 100.0}) {
                const auto& [N, C] = s;
                Case c(format("layernorm_forward %s around %g", text_of(form, s).c_str(), mean_of_inp));
                Tensor &out = c.out(kX, N * C), &rstd = c.out(kFloat, N);
                Tensor* mean = form.rms ? nullptr : &c.out(kFloat, N);
                std::vector<float> x = normal(N * C, 1, mean_of_inp);
                // A constant row has variance 0, and one of zeros the mean square 0.
                if (N > 2) std::fill(x.begin() + C, x.begin() + 2 * C, form.rms ? 0.0f : 0.5f);
                Tensor &inp = c.in(kX, x), &weight = c.random(C);
                Tensor* bias = form.rms ? nullptr : &c.random(C);
                Norm norm = {N, C, &inp, &out, mean, &rstd, &weight, bias, form.eps};
                RUN(c, layernorm_forward, norm);
                const bool cancels = mean_of_inp != 0 && !form.rms;
                c.near(out, cancels ? 400 : 8);    // k: a few roundings of values of size 1, or of size 100
                if (mean) c.near(*mean, 4, 0, 1);  // k: a sum of C terms of size 1, divided by C
                c.near(rstd, cancels ? 400 : 8);   // k: as out
            }
}

static void residual_layernorm(const NormSize& s, const NormForm& form, float rate, bool in_place) {
    const auto& [N, C] = s;
    Mask mask(rate);
    Case c(format("residual_layernorm_forward %s dropout=%g in_place=%d", text_of(form, s).c_str(), rate, in_place));
    Tensor &out = c.out(kX, N * C), &rstd = c.out(kFloat, N);
    Tensor* mean = form.rms ? nullptr : &c.out(kFloat, N);
    Tensor& residual = in_place ? c.inout(kX, normal(N * C)) : c.out(kX, N * C);
    Tensor& inp = in_place ? residual : c.random(N * C);
    Tensor &branch = c.random(N * C), &weight = c.random(C);
    Tensor* bias = form.rms ? nullptr : &c.random(C);
    Norm norm = {N, C, &residual, &out, mean, &rstd, &weight, bias, form.eps};
    RUN(c, residual_layernorm_forward, norm, inp, branch, mask);
    c.near(residual, 2);               // k: one division and one add
    c.near(out, 8, 1);                 // k: as layernorm_forward; kx: of the residual as stored
    if (mean) c.near(*mean, 4, 1, 1);  // k: as layernorm_forward
    c.near(rstd, 8, 1);                // k: as out
}
TEST(residual_layernorm_forward) {
    for (const NormSize& s : kNorms)
        for (const NormForm& form : kNormForms)
            for (const float rate : kRates)
                for (const bool in_place : {false, true}) residual_layernorm(s, form, rate, in_place);
}

static void layernorm_backward_case(const NormSize& s, bool rms, bool first) {
    const size_t C = size_t(s.C), N = size_t(s.N);
    Case c(format("%s backward N=%d C=%d first=%d", rms ? "RMSNorm" : "LayerNorm", s.N, s.C, first));
    c.once = s.N > 200;       // as it would take long
    const double around = rms ? 0.5 : 0;
    Tensor &inp = c.random(N * C, 1, around), &dout = c.random(N * C, 1, around), &weight = c.random(C);
    Tensor &out = c.out(kX, N * C), &rstd = c.out(kFloat, N);
    Tensor *mean = rms ? nullptr : &c.out(kFloat, N), *bias = rms ? nullptr : &c.random(C);
    Norm norm = {s.N, s.C, &inp, &out, mean, &rstd, &weight, bias, 1e-5f};
    RUN(c, layernorm_forward, norm);
    rstd.becomes_input();
    if (mean) mean->becomes_input();
    norm.out = norm.bias = nullptr;
    Tensor& dinp = first ? c.out(kX, N * C) : c.inout(kX, normal(N * C));
    std::vector<Tensor*> sums = {&c.out(kFloat, C)};
    if (!rms) sums.push_back(&c.out(kFloat, C));
    expect_one_add(c, sums, [&](bool accumulate) {
        Tensor* dbias = rms ? nullptr : sums[1];
        RUN(c, layernorm_backward, dinp, *sums[0], dbias, dout, norm, first, accumulate);
        c.near(dinp, 8);  // k: five operations after two means over the row
        for (const Tensor* sum : sums) c.near(*sum, 4 + root(double(N)));  // k: a sum over N rows
    });
}
TEST(layernorm_backward) {
    for (const NormSize& s : kNorms)
        for (const bool rms : {false, true})
            for (const bool first : {false, true}) layernorm_backward_case(s, rms, first);
    // On a GPU: slots that meet many rows, and more partial sums than reduce_partials_kernel adds in one turn.
    for (const NormSize& s : {NormSize{300, 2048}, NormSize{2100, 8}})
        for (const bool rms : {false, true}) layernorm_backward_case(s, rms, false);
}

TEST(dropout_backward) {
    for (const size_t n : {size_t(8), size_t(65 * 24), size_t(100008)})
        for (const float rate : kRates)
            for (const bool in_place : {false, true}) {
                Mask mask(rate);
                Case c(format("dropout_backward n=%zu dropout=%g in_place=%d", n, rate, in_place));
                Tensor& dinp = in_place ? c.inout(kX, normal(n)) : c.out(kX, n);
                Tensor& dout = in_place ? dinp : c.random(n);
                RUN(c, dropout_backward, dinp, dout, n, mask);
                c.near(dinp, 2);  // k: one division
                if (rate == 0) c.same(dinp);
            }
}

// ---------------------------------------------------------------------------------------------------------- matmul

struct Matmul { int N, C, OC; };
static const Matmul kMatmuls[] = {{1, 8, 8},      {3, 24, 64},    {65, 136, 24}, {130, 64, 272},
                                  {1, 768, 1008}, {67, 768, 136}, {300, 8, 1040}, {4, 72, 24}, {5, 72, 24},
                                  {150, 200, 48}, {131, 808, 40}};

// A case of a product. Its operands are random numbers or small integers: then all sums are exact in float, in any
// order. `by` names the tile of a large case, which runs once.
struct Product : Case {
    const size_t N, C, OC;
    const bool exact;
    Product(const char* op, const Matmul& s, bool exact_, const char* by)
        : Case(format("%s N=%d C=%d OC=%d exact=%d %s", op, s.N, s.C, s.OC, exact_, by)), N(size_t(s.N)),
          C(size_t(s.C)), OC(size_t(s.OC)), exact(exact_) {
        once = *by;
    }
    std::vector<float> numbers(size_t n) const { return exact ? integers(n, -4, 4) : normal(n); }
    Tensor& operand(size_t n) { return in(kX, numbers(n)); }
    void compare(const Tensor& t, double k) const { exact ? same(t) : near(t, k); }
};

static void forward_case(const Matmul& s, bool exact, bool with_bias, const char* by = "") {
    Product c(with_bias ? "matmul_forward with bias" : "matmul_forward", s, exact, by);
    Tensor &out = c.out(kX, c.N * c.OC), &inp = c.operand(c.N * c.C), &weight = c.operand(c.OC * c.C);
    Tensor* bias = with_bias ? &c.operand(c.OC) : nullptr;
    RUN(c, matmul_forward, out, inp, weight, bias, s.N, s.C, s.OC);
    c.compare(out, 2 + root(s.C));  // k: a sum of C terms
}
static void gelu_case(const Matmul& s, bool exact, const char* by = "") {
    Product c("matmul_gelu_forward", s, exact, by);
    Tensor &out = c.out(kX, c.N * c.OC), &pre = c.out(kX, c.N * c.OC), &inp = c.operand(c.N * c.C);
    std::vector<float> w = c.numbers(c.OC * c.C);
    if (!exact)
        for (float& x : w) x /= float(root(s.C));  // pre of size 1, where gelu bends
    Tensor &weight = c.in(kX, w), &bias = c.operand(c.OC);
    RUN(c, matmul_gelu_forward, out, pre, inp, weight, bias, s.N, s.C, s.OC);
    c.compare(pre, 2 + root(s.C));               // k: a sum of C terms
    c.near(out, exact ? 8 : 8 + root(s.C), 1);   // k: and gelu; kx: of pre as stored
}
static void input_case(const Matmul& s, bool exact, const char* by = "") {
    Product c("matmul_backward_input", s, exact, by);
    Tensor &dinp = c.out(kX, c.N * c.C), &dout = c.operand(c.N * c.OC), &weight = c.operand(c.OC * c.C);
    RUN(c, matmul_backward_input, dinp, dout, weight, s.N, s.C, s.OC);
    c.compare(dinp, 2 + root(s.OC));  // k: a sum of OC terms
}
static void gelu_input_case(const Matmul& s, bool in_place, const char* by = "") {
    Product c(in_place ? "matmul_gelu_backward_input in place" : "matmul_gelu_backward_input", s, false, by);
    std::vector<float> x = normal(c.N * c.C, 2);
    x[0] = -30, x[1] = 30, x[2] = 0;  // where tanh is flat
    Tensor& dpre = in_place ? c.inout(kX, x) : c.out(kX, c.N * c.C);
    Tensor& pre = in_place ? dpre : c.in(kX, x);
    Tensor &dout = c.operand(c.N * c.OC), &weight = c.operand(c.OC * c.C);
    RUN(c, matmul_gelu_backward_input, dpre, dout, weight, pre, s.N, s.C, s.OC);
    c.near(dpre, 8 + root(s.OC));  // k: a sum of OC terms, and gelu'
}
static void params_case(const Matmul& s, bool exact, bool accumulate, bool with_bias, const char* by = "") {
    Product c(accumulate ? "matmul_backward_params accumulate" : "matmul_backward_params", s, exact, by);
    std::vector<Tensor*> sums = {&c.out(kFloat, c.OC * c.C)};
    if (with_bias) sums.push_back(&c.out(kFloat, c.OC));
    Tensor &dout = c.operand(c.N * c.OC), &inp = c.operand(c.N * c.C);
    const auto run = [&](bool more) {
        Tensor* dbias = with_bias ? sums[1] : nullptr;
        RUN(c, matmul_backward_params, *sums[0], dbias, dout, inp, s.N, s.C, s.OC, more);
        for (const Tensor* sum : sums) c.compare(*sum, 2 + root(s.N));  // k: a sum of N terms
    };
    if (accumulate) expect_one_add(c, sums, run);
    else run(false);
}

// f(size, setting) for every size and both values of a setting.
template <class F> static void each_matmul(const F& f) {
    for (const Matmul& s : kMatmuls)
        for (const bool setting : {true, false}) f(s, setting);
}
TEST(matmul_forward) {
    each_matmul([](const Matmul& s, bool exact) {
        for (const bool with_bias : {true, false}) forward_case(s, exact, with_bias);
    });
}
TEST(matmul_gelu_forward) {
    each_matmul([](const Matmul& s, bool exact) { gelu_case(s, exact); });
}
TEST(matmul_gelu_backward_input) {
    each_matmul([](const Matmul& s, bool in_place) { gelu_input_case(s, in_place); });
}
TEST(matmul_backward_input) {
    each_matmul([](const Matmul& s, bool exact) { input_case(s, exact); });
}
TEST(matmul_backward_params_bias) {
    each_matmul([](const Matmul& s, bool exact) {
        for (const bool with_bias : {true, false}) params_case(s, exact, true, with_bias);
    });
}

// 1 + 2^-23 + 2^-24 - 2^-60 is just below the middle of two floats. A double cannot hold the last term: a sum that is
// rounded to double and then to float goes up.
TEST(matmul_rounds_once) {
    const float one = 1 + FLT_EPSILON, above = 0x1.00004p-12f, below = 0x1.ffff8p-13f;
    for (const size_t N : {1, 8}) {
        std::vector<float> x(N * 8, 0), w(8 * 8, 0);
        for (size_t n = 0; n < N; n++) x[n * 8] = one, x[n * 8 + 1] = above;
        for (size_t o = 0; o < 8; o++) w[o * 8] = 1, w[o * 8 + 1] = below;
        Case c(format("matmul_forward N=%zu", N));
        Tensor &out = c.out(kX, N * 8), &inp = c.in(kX, x), &weight = c.in(kX, w);
        RUN(c, matmul_forward, out, inp, weight, static_cast<Tensor*>(nullptr), int(N), 8, 8);
        c.near(out, 2);
    }
}

// Sizes for which the CUDA backend takes its larger tiles, more rows of tiles than stand in a band, and parts of a long
// sum. Small integers, so that the order cannot matter.
TEST(matmul_large_tiles) {
    for (const Matmul& s : {Matmul{514, 24, 3464}, Matmul{386, 8, 3976}, Matmul{2100, 8, 72}})
        forward_case(s, true, true, "by large tiles");
    params_case({2100, 8, 24}, true, false, true, "by large tiles");  // accumulate_is_one_add has this size, too
}

// f(tile) with each tile of the CUDA backend (the first three need a Hopper GPU), whatever the shape: what ends inside
// a tile and a stage, parts of a long sum, more steps than a ring has stages. Other backends have no tiles: once.
static void each_tile(const std::function<void(const char*)>& f) {
    for (const char* tile : {"wide", "pingpong", "fitting", "large", "medium", "small"}) {
        setenv("LOCKSTEP_TILE", tile, 1);
        f(tile);
        if (!BACKEND::kOnGpu) break;
    }
    unsetenv("LOCKSTEP_TILE");
}
TEST(matmul_by_tile) {
    each_tile([](const char* tile) {
        for (const Matmul& s : {Matmul{130, 72, 328}, Matmul{72, 520, 264}, Matmul{330, 136, 264}}) {
            // Of an H100's 132: then a block has 3 tiles or more.
            BACKEND::spare_multiprocessors(s.N == 330 ? 130 : 0);
            gelu_case(s, true, tile);
            forward_case(s, true, false, tile);
            input_case(s, true, tile);
            gelu_input_case(s, true, tile);
            params_case(s, true, true, true, tile);
        }
        BACKEND::spare_multiprocessors(0);
    });
}

// Sums of 1 to 9 steps of 64 k and, split into parts, of many more: every remainder of the loops that the compiler
// unrolls.
TEST(matmul_long_sums_by_tile) {
    each_tile([](const char* tile) {
        for (const int K : {40, 104, 168, 232, 296, 360, 424, 488, 552, 1096, 1160, 1224, 1288}) {
            forward_case({72, K, 136}, true, true, tile);
            input_case({72, 136, K}, true, tile);
            gelu_input_case({72, 136, K}, true, tile);
        }
        for (const int K : {40, 104, 168, 232, 296, 360, 424, 488, 552, 4090, 5000, 6000, 7000, 8100})
            params_case({K, 40, 72}, true, false, true, tile);
    });
}

TEST(gelu_forward) {
    for (const size_t n : {size_t(8), size_t(1000), size_t(40008)}) {
        Case c(format("gelu_forward n=%zu", n));
        Tensor &out = c.out(kX, n), &pre = c.in(kX, normal(n, 3));
        RUN(c, gelu_forward, out, pre, n);
        c.near(out, 8);
    }
    const size_t N = 5, C = 8, OC = 72;  // what a backward recomputes has forward's bits
    Case c("matmul_gelu_forward and gelu_forward");
    Tensor &out = c.out(kX, N * OC), &pre = c.out(kX, N * OC), &inp = c.in(kX, normal(N * C)),
           &weight = c.in(kX, normal(OC * C));
    RUN(c, matmul_gelu_forward, out, pre, inp, weight, static_cast<Tensor*>(nullptr), int(N), int(C), int(OC));
    std::vector<BACKEND::floatX> before(N * OC), after(N * OC);
    BACKEND::copy_to_host(before.data(), out.at(kBackend), N * OC * sizeof before[0], nullptr);
    BACKEND::gelu_forward(reinterpret_cast<BACKEND::floatX*>(out.at(kBackend)),
                          reinterpret_cast<BACKEND::floatX*>(pre.at(kBackend)), N * OC, nullptr);
    BACKEND::copy_to_host(after.data(), out.at(kBackend), N * OC * sizeof before[0], nullptr);
    EXPECT(std::memcmp(before.data(), after.data(), N * OC * sizeof before[0]) == 0,
           "gelu_forward has other bits than matmul_gelu_forward");
}

// The CUDA backend adds parts of these sums.
TEST(accumulate_is_one_add) { params_case({2100, 8, 24}, false, true, true); }

// ------------------------------------------------------------------------------------------------------- attention

struct AttentionCase {
    int B, T, NH, NK, HS;
    Heads heads(Mask& mask, float scale = 0) const { return {B, T, NH, NK, HS, mask, scale}; }
    size_t rows() const { return size_t(B) * size_t(T) * size_t(NH); }  // of lse
    size_t n() const { return rows() * size_t(HS); }                    // of out
    size_t n_qkv() const { return size_t(B) * size_t(T) * size_t(NH + 2 * NK) * size_t(HS); }
    std::string text(const char* name, float rate) const {
        return format("%s B=%d T=%d NH=%d NK=%d HS=%d dropout=%g", name, B, T, NH, NK, HS, rate);
    }
};
static const AttentionCase kAttentions[] = {
    {1, 1, 1, 1, 8},    {2, 2, 3, 3, 24},   {1, 17, 2, 2, 64},  {2, 65, 3, 3, 8}, {1, 129, 2, 2, 128},
    {1, 130, 1, 1, 64}, {3, 33, 2, 2, 40},  {2, 65, 2, 2, 64},  {1, 257, 1, 1, 64}, {2, 1, 1, 1, 128},
    {1, 257, 1, 1, 128},
    {2, 1, 7, 1, 8},    {1, 33, 14, 2, 24}, {2, 35, 6, 3, 40},  {2, 67, 4, 2, 8}, {1, 67, 14, 2, 64},
    {2, 131, 4, 2, 64}, {1, 195, 3, 1, 64}, {1, 195, 5, 1, 128}, {2, 131, 4, 2, 128}};
// Every other case has a scale of its own, 1.5 / sqrt(HS).
static float scale_in(const AttentionCase& s) {
    return (&s - kAttentions) % 2 ? 1.5f / std::sqrt(float(s.HS)) : 0.0f;
}

// Checks what forward computes, or what backward computes of that: where a query sees all earlier keys, and by one of
// kSights.
static void each_attention(const char* op, bool backward) {
    for (const AttentionCase& s : kAttentions)
        for (int i = 0; i < 4; i++) {
            const float rate = kRates[i % 2];
            const size_t sight = size_t(&s - kAttentions + i * 2) % std::size(kSights);
            Mask mask(rate);
            Heads heads = s.heads(mask, scale_in(s));
            Case c(s.text(op, rate) + (i < 2 ? "" : format(" sight %zu", sight)));
            if (i >= 2) heads.begin = &c.in(kInt, first_keys(kSights[sight], s.B, s.T));
            Tensor &dqkv = c.out(kX, s.n_qkv()), &delta = c.scratch(kFloat, s.rows()), &dout = c.random(s.n());
            Tensor &qkv = c.random(s.n_qkv()), &out = c.out(kX, s.n()), &lse = c.out(kFloat, s.rows());
            RUN(c, attention_forward, out, lse, qkv, heads);
            if (!backward) {
                c.near(out, 8 + root(s.HS) + root(s.T), 1);     // k: q.k, exp, a sum of T terms; kx: of p, if stored
                c.near(lse, 8 + root(s.HS), 0, 1);              // k: q.k, exp and log of scores of size 1
                continue;
            }
            out.becomes_input();
            lse.becomes_input();
            RUN(c, attention_backward, dqkv, delta, dout, qkv, out, lse, heads);
            // k: two dot products, exp, sums of a term per query of the group; kx: of p and ds
            c.near(dqkv, 16 + root(s.HS) + root(s.T * s.NH / s.NK), 1);
        }
}
TEST(attention_forward) { each_attention("attention_forward", false); }
TEST(attention_backward) { each_attention("attention_backward", true); }

// Scores up to 128 and more, where exp overflows; integers and HS = 64 make q.k / 8 exact, so that p is well defined.
TEST(attention_forward_large_scores) {
    const int T = 70, NH = 2, HS = 64;
    const size_t n = size_t(T * NH * HS);
    Mask none(0);
    Heads heads = {1, T, NH, NH, HS, none};
    Case c("attention_forward, large scores");
    std::vector<float> x = integers(3 * n, -25, 25);
    for (size_t i = 0; i < n; i++)
        x[i / size_t(NH * HS) * size_t(3 * NH * HS) + i % size_t(NH * HS)] = i % 3 ? 5.0f : -7.0f;
    Tensor &out = c.out(kX, n), &lse = c.out(kFloat, size_t(T * NH)), &qkv = c.in(kX, x);
    RUN(c, attention_forward, out, lse, qkv, heads);
    EXPECT(*std::max_element(lse.want.begin(), lse.want.end()) > 150,
           "the scores are not large: the test tests nothing");
    c.near(out, 64, 1);  // k: exp of a difference of 100 loses 7 bits at the most
    c.near(lse, 4);      // k: one add and one log
}

// Fed in pieces, the cache gives what attention_forward gives for all positions at once.
TEST(attention_cached) {
    const struct { int NH, NK, HS, maxT; } shapes[] = {{1, 1, 8, 7},  {3, 3, 24, 70},  {2, 2, 64, 70}, {1, 1, 128, 140},
                                                       {7, 1, 24, 9}, {14, 2, 64, 20}, {6, 3, 40, 71}, {4, 2, 128, 70}};
    for (int i = 0; i < 2 * int(std::size(shapes)); i++) {
        const auto& s = shapes[i / 2];
        const int T = s.maxT - 1, C = s.NH * s.HS, wide = C + 2 * s.NK * s.HS;
        const size_t row = size_t(C), cache_n = 2 * size_t(s.maxT) * size_t(s.NK * s.HS);
        Mask none(0);
        const std::vector<float> x = normal(size_t(wide) * size_t(T));
        Heads whole = {1, T, s.NH, s.NK, s.HS, none, s.NK == 2 ? 0.3f : 0};
        Case all("attention_forward for attention_cached");
        const std::vector<float> begin = first_keys(kSights[size_t(i / 2)], 1, T);
        if (i % 2) whole.begin = &all.in(kInt, begin);
        Tensor &out_all = all.out(kX, row * size_t(T)), &lse = all.out(kFloat, size_t(T * s.NH)),
               &qkv_all = all.in(kX, x);
        RUN(all, attention_forward, out_all, lse, qkv_all, whole);

        std::vector<float> cache_now(cache_n, 12345);  // whatever is read of what was never written shows
        const int pieces[] = {1, 3, 1, T - 5};
        for (int piece = 0, first = 0; piece < 4; first += pieces[piece++]) {
            const int n = pieces[piece];
            Heads heads = whole;
            heads.T = n;
            Case c(format("attention_cached first=%d n=%d NH=%d NK=%d HS=%d maxT=%d", first, n, s.NH, s.NK, s.HS,
                          s.maxT));
            Tensor &out = c.out(kX, row * size_t(n)), &cache = c.inout(kX, cache_now);
            Tensor& qkv = c.in(kX, {x.begin() + wide * first, x.begin() + wide * (first + n)});
            if (whole.begin) heads.begin = &c.in(kInt, {begin.begin() + first, begin.begin() + first + n});
            RUN(c, attention_cached, out, cache, qkv, first, s.maxT, heads);
            c.same(cache);
            c.near(out, 8 + root(s.HS) + root(T), 1);  // k, kx: as attention_forward
            cache_now.assign(cache.got.begin(), cache.got.end());
            out.want.assign(out_all.want.begin() + C * first, out_all.want.begin() + C * (first + n));
            c.near(out, 8 + root(s.HS) + root(T), 1);  // k, kx: as above
        }
        EXPECT(cache_now[size_t(T) * size_t(s.HS)] == 12345 || kHalf,
               "the cache's row beyond the last position was written");
    }
}

// ------------------------------------------------------------------------------------------------- loss and sums

// Logits of a table, with the losses' k and the size of what they are differences of. Returns the losses.
static std::vector<double> classifier_case(const char* what, const std::vector<float>& x, int V,
                                           const std::vector<float>& wanted, double k, double terms,
                                           bool backward = true) {
    Case c(format("classifier N=%zu V=%d backward=%d, %s", wanted.size(), V, backward, what));
    Tensor &losses = c.out(kFloat, wanted.size()), &logits = backward ? c.inout(kX, x) : c.in(kX, x);
    Tensor& targets = c.in(kInt, wanted);
    RUN(c, classifier, losses, logits, targets, int(wanted.size()), V, int(x.size() / wanted.size()), backward);
    c.near(losses, k, 0, terms);
    if (backward) c.near(logits, 8);  // k: exp of a difference, which is 20 at the most, and a division
    return losses.got;
}
TEST(classifier) {
    for (const int N : {1, 3, 65})
        for (const int V : {65, 257, 1003})
            for (const bool backward : {false, true}) {
                const int Vp = (V + 15) / 16 * 16;
                std::vector<float> x = normal(size_t(N) * size_t(Vp), 3), wanted = tokens_of(size_t(N), V);
                for (int n = 0; n < N; n++)  // the padding takes no part: not even as NaN
                    std::fill(x.begin() + n * Vp + V, x.begin() + (n + 1) * Vp, kNaN);
                for (size_t n = 1; n < wanted.size(); n += 3) {  // not trained on: whatever the logits are
                    wanted[n] = -1;
                    x[n * size_t(Vp)] = kNaN;
                }
                classifier_case("padded", x, V, wanted, 8, 4, backward);  // k: the sum of exp, its log, a difference
            }
}
// A row whose shared memory is 48 KB without what the kernel adds, and GPT-2's, which is near all that a block can have
// of some GPUs.
TEST(classifier_long_rows) {
    for (const int V : {24570, 50257})
        classifier_case("a long row", normal(size_t(V + 15) / 16 * 16, 3), V, {float(V - 1)}, 8, 4);  // k: as above
}
// Certain, impossible and huge: no NaN, no infinity. The logits are integers, so the differences are exact.
TEST(classifier_large_logits) {
    const size_t Vp = 32;
    std::vector<float> x = integers(4 * Vp, -16, 16);
    for (size_t i = 0; i < Vp; i++) x[i] *= 1024;
    x[Vp] = 12352;      // row 1: certain, and right; no power of two
    x[2 * Vp] = 12352;  // row 2: certain, and wrong
    const std::vector<double> got = classifier_case("large logits", x, 20, {5, 0, 1, 7}, 4, 0);  // k: a log and an add
    EXPECT(got[1] == 0 && got[2] > 4000, "losses %g and %g", got[1], got[2]);
}
// Where e^x comes near to 1.2e-38: a power of e that is another number, or 0, by a little.
TEST(classifier_least_probabilities) {
    std::vector<float> x = {0, -87, -87.25f, -88.5f, -80};
    x.resize(16);
    classifier_case("least probabilities", x, 5, {4}, 4, 0);  // k: one log and one add
}

// Whatever the bits of a NaN are, what depends on it is one: an activation that was not written never looks finite.
TEST(nan_stays_nan) {
    const auto all_nan = [](const Case& c, const Tensor& t, size_t from, size_t n) {
        for (size_t i = from; i < from + n; i++)
            EXPECT(std::isnan(t.got[i]) && std::isnan(t.want[i]), "%s: %s[%zu]: got %g, want %g", c.what.c_str(),
                   t.name.c_str(), i, t.got[i], t.want[i]);
    };
    for (const uint32_t bits : {kPoison, 0x7fc00000u, 0xffc00000u, 0x7fffffffu, 0xffffff01u, 0x7f800001u}) {
        const float nan = std::bit_cast<float>(bits);
        const int V = 20, Vp = 32;
        for (const bool backward : {false, true}) {
            Case c(format("classifier of NaN %08x", bits));
            std::vector<float> x = normal(size_t(Vp));
            x[3] = nan;
            Tensor &losses = c.out(kFloat, 1), &logits = c.inout(kX, x), &targets = c.in(kInt, {5});
            RUN(c, classifier, losses, logits, targets, 1, V, Vp, backward);
            all_nan(c, losses, 0, 1);
            if (backward) all_nan(c, logits, 0, size_t(V));
        }
        for (const int HS : {8, 64, 128}) {
            const AttentionCase s = {1, 37, 1, 1, HS};
            const size_t row = size_t(HS), from = 2 * row;
            Mask none(0);
            Heads heads = s.heads(none);
            std::vector<float> x = normal(s.n_qkv());
            for (size_t i = 0; i < row; i++) x[2 * 3 * row + row + i] = nan;                // the key of position 2
            Case c(format("attention_forward of NaN %08x, HS=%d", bits, HS));
            Tensor &out = c.out(kX, s.n()), &lse = c.out(kFloat, s.rows()), &qkv = c.in(kX, x);
            RUN(c, attention_forward, out, lse, qkv, heads);
            all_nan(c, out, from, s.n() - from);
            all_nan(c, lse, 2, s.rows() - 2);
            EXPECT(std::isfinite(out.got[from - 1]) && std::isfinite(lse.got[1]), "rows before the NaN are finite");
            Case b(format("attention_backward of NaN %08x, HS=%d", bits, HS));
            Tensor &dqkv = b.out(kX, s.n_qkv()), &delta = b.scratch(kFloat, s.rows()),
                   &dout = b.random(s.n());
            Tensor &again = b.in(kX, x), &y = b.random(s.n()), &l = b.in(kFloat, normal(s.rows()));
            RUN(b, attention_backward, dqkv, delta, dout, again, y, l, heads);      // a finite lse hides nothing
            for (size_t t = 2; t < size_t(s.T); t++) all_nan(b, dqkv, t * 3 * row, row);    // dq
        }
    }
}

TEST(sum_in_order) {
    for (const size_t n : {size_t(0), size_t(1), size_t(7), size_t(1003), size_t(50001)}) {
        std::vector<float> x = normal(n);
        for (size_t i = 0; i < n; i += 3) x[i] *= i % 2 ? 1e9f : 1e-9f;  // so that another order gives other bits
        Case c(format("sum_in_order n=%zu", n));
        Tensor &total = c.out(kDouble, 1), &in = c.in(kFloat, x);
        RUN(c, sum_in_order, total, in, n);
        c.same(total);
    }
}

// ------------------------------------------------------------------------------------------------------- the update

// Numbers of very different sizes, whose sums round in every order to other bits.
static std::vector<float> rough(size_t n) {
    std::vector<float> x = normal(n);
    for (size_t i = 0; i < n; i++) x[i] = std::ldexp(x[i], int(i * 7 % 23) - 11);
    return x;
}

static void fold_case(Tree tree, int count, size_t units, int alias) {  // out is none of the terms, or term `alias`
    const size_t n = units * kUnit;
    Case c(format("tree_reduce%s count=%d n=%zu out=terms[%d]", tree == Tree::kNested ? " from the back" : "", count, n,
                  alias));
    Tensor* partials = units > 1 ? &c.out(kFloat, units) : nullptr;
    c.arena = true;
    Arrays terms;
    for (int i = 0; i < count; i++)
        terms.list.push_back(&(i == alias ? c.inout(kFloat, rough(n)) : c.in(kFloat, rough(n))));
    Tensor& out = alias >= 0 ? *terms.list[size_t(alias)] : c.out(kFloat, n);
    RUN(c, tree_reduce, out, partials, terms, count, tree, n);
    c.same(out);
    if (partials) c.same(*partials);
}

TEST(tree_reduce) {
    for (const int count : {1, 2, 4, 8, 16, 32, 64})
        for (const size_t units : {1, 3})
            for (int alias = -1; alias<count; alias += count> 2 ? count / 2 : 1)
                fold_case(Tree::kBalanced, count, units, alias);
    for (const int count : {2, 3, 4, 5, 6, 7})
        for (const int alias : {-1, 0, count - 1}) fold_case(Tree::kNested, count, 3, alias);
}

TEST(clip_scale) {
    for (const size_t units : {size_t(1), size_t(255), size_t(1003)})
        for (const double clip : {0.0, 0.5, 1e9})
            for (const double spoil : {0.0, double(kNaN), double(INFINITY)}) {
                Case c(format("clip_scale units=%zu clip=%g spoiled=%g", units, clip, spoil));
                std::vector<float> p = normal(units, 1, 4);
                if (spoil != 0) p[units / 2] = float(spoil);
                Tensor &state = c.inout(kFloat, std::vector<float>(sizeof(StepState) / sizeof(float), 7)),
                       &norm = c.out(kDouble, 1);
                Tensor& partials = c.in(kFloat, p);
                c.run(SPEC::clip_scale, BACKEND::clip_scale, state, norm, partials, units, clip);
                const size_t at = offsetof(StepState, grad_scale) / sizeof(float);
                EXPECT(std::isfinite(state.got[at]) == (spoil == 0) && std::isfinite(norm.got[0]) == (spoil == 0),
                       "%s: norm %g, scale %g", c.what.c_str(), norm.got[0], state.got[at]);
                if (spoil == 0) {
                    c.same(norm);
                    c.same(state);
                }
            }
}

// Every rule, stage by stage: the specification's bits. The state is one that two updates have made; arrays that stage
// 0 does not use are positive. A gradient that is not finite changes nothing.
static void update_case(size_t optimizer, int stage, float spoil, size_t units) {
    const size_t n = units * kUnit;
    const OptimizerInfo& info = *all_optimizers()[optimizer];
    std::vector<double> hyper = default_values(info), sums(size_t(info.sums));
    std::vector<std::vector<float>> arrays(info.state.size(), std::vector<float>(n));
    std::vector<float> w = normal(n), rates;
    for (size_t k = 0; k < units; k++)
        rates.insert(rates.end(), {float(1 + k), float(k % 2), 0});     // a float's 0 has the bits of an int's
    static_assert(sizeof(Rates) == 3 * sizeof(float));
    StepState now = {42, 0, 1e-3f, 0.5f, {}};
    for (now.step = 0; now.step < 2; now.step++) {
        std::vector<float*> at;
        for (std::vector<float>& array : arrays) at.push_back(array.data());
        std::vector<float> grads = normal(n);
        grads[3] = 0;                                       // where only eps keeps AdamW's quotient finite
        info.prepare(&now, hyper.data(), now.step + 1, 0.5, sums.data());
        const std::vector<Rates> all(units, {.decay = 0});
        std::vector<SPEC::floatX> stored(n);
        SPEC::update(int(optimizer), 0, {n, stored.data(), w.data(), at.data(), grads.data(), all.data(), &now});
    }
    for (size_t k = size_t(info.stages[0]); k < arrays.size(); k++)
        for (float& x : arrays[k] = normal(n)) x *= x;
    info.prepare(&now, hyper.data(), 3, 0.5, sums.data());
    now.grad_scale += spoil;
    const State state(now);
    Case c(format("update %s stage=%d units=%zu", info.name, stage, units));
    c.arena = true;
    Tensor& master = c.inout(kFloat, w);
    Arrays list;
    for (const std::vector<float>& array : arrays) list.list.push_back(&c.inout(kFloat, array));
    Tensor &grad = c.in(kFloat, normal(n)), &by_unit = c.in(kFloat, rates), &half = c.scratch(kX, n);
    Either param = {sizeof(SPEC::floatX) == 2 ? &half : &master, sizeof(BACKEND::floatX) == 2 ? &half : &master};
    Updates updates = {n, param, master, list, grad, by_unit, state};
    RUN(c, update, int(optimizer), stage, updates);
    list.list.push_back(&master);
    for (const Tensor* t : list.list) {
        c.same(*t);
        for (size_t i = 0; i < n && spoil != 0; i++) EXPECT(t->got[i] == double(t->start[i]), "changed at %zu", i);
    }
    if (sizeof(BACKEND::floatX) == 4 || spoil != 0) return;
    half.want = stored(kBackend, kX, master.want);          // the master, rounded once
    c.same(half);
}
TEST(update) {
    for (size_t optimizer = 0; optimizer < all_optimizers().size(); optimizer++)
        for (size_t stage = 0; stage < all_optimizers()[optimizer]->stages.size(); stage++)
            for (const float spoil : {0.0f, kNaN})
                for (const size_t units : {1, 5}) update_case(optimizer, int(stage), spoil, units);
}

static void adamw_formula(const Formula& f) { f.w -= f.lr * (adamw_direction(f) + f.decay * f.hyper[3] * f.w); }
static void sgd_formula(const Formula& f) {
    f.state[0] = f.hyper[0] * f.state[0] + f.grad + f.decay * f.hyper[1] * f.w;
    f.w -= f.lr * f.state[0];
}
TEST(formulas) {
    expect_formula(adamw_info, {0.9, 0.95, 1e-8, 0.1}, adamw_formula);
    expect_formula(sgd_info, {0.9, 0.1}, sgd_formula);
    expect_formula(muon_info, {0.9, 0.95, 1e-8, 0.1, 0.95, 0.02}, adamw_formula);      // but for its matrices
}
TEST(negative_control_of_formulas) {
    const auto wrong = [](const Formula& f) {
        const double w = f.w;
        sgd_formula(f);
        f.w -= 1e-4 * f.lr * f.decay * w;
    };
    EXPECT(fails([&] { expect_formula(sgd_info, {0.9, 0.1}, wrong); }), "a decay that is 1e-4 off passes");
}

// Newton and Schulz in double, on a matrix (rows, cols).
static std::vector<double> orthogonal(std::vector<double> x, size_t rows, size_t cols) {
    const auto product = [&](const std::vector<double>& a, const std::vector<double>& b) {      // a is (rows,rows)
        const size_t width = b.size() / rows;
        std::vector<double> out(b.size(), 0);
        for (size_t i = 0; i < rows; i++)
            for (size_t k = 0; k < rows; k++)
                for (size_t j = 0; j < width; j++) out[i * width + j] += a[i * rows + k] * b[k * width + j];
        return out;
    };
    double norm = 0;
    for (const double v : x) norm += v * v;
    for (double& v : x) v /= std::sqrt(norm);
    for (int step = 0; step < 5; step++) {
        std::vector<double> gram(rows * rows, 0);
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < rows; j++)
                for (size_t k = 0; k < cols; k++) gram[i * rows + j] += x[i * cols + k] * x[j * cols + k];
        const std::vector<double> square = product(gram, gram);
        for (size_t i = 0; i < gram.size(); i++)
            gram[i] = (i % (rows + 1) == 0 ? 3.4445 : 0) - 4.7750 * gram[i] + 2.0315 * square[i];
        x = product(gram, x);
    }
    return x;
}

// Wide, tall and square. An element of an orthogonal matrix is 1 / sqrt(longer side) in size. bf16 keeps 8 bits of each
// of 15 products.
TEST(muon_matrix) {
    const size_t shapes[][2] = {{24, 104}, {104, 24}, {64, 64}, {72, 64}, {8, 512}};
    for (const auto& [rows, cols] : shapes) {
        const double size = 3 * 0.02 / std::sqrt(double(std::min(rows, cols)));
        const double tolerance = size * (kHalf ? 0.1 : 1e-4);
        const double scale = std::sqrt(std::fmax(1, double(rows) / double(cols)));
        std::vector<double> m(rows * cols), d(m);
        const auto formula = [&](std::vector<double>& w, const std::vector<float>& g, int) {
            for (size_t i = 0; i < m.size(); i++) {
                m[i] = 0.95 * m[i] + 0.05 * 1e-3 * double(g[i]);
                d[i] = 0.95 * m[i] + 0.05 * 1e-3 * double(g[i]);
            }
            const std::vector<double> step = orthogonal(d, rows, cols);
            for (size_t i = 0; i < m.size(); i++) w[i] -= 0.5 * 0.02 * (scale * step[i] + 0.5 * 0.1 * w[i]);
        };
        expect_matrix(muon_info, BACKEND::muon_matrix, rows, cols, rows, 0.5f, 1e-2f, tolerance, formula);
    }
}

// Every matrix of small models beside torch.optim.Muon (tests/golden/make_muon.py).
TEST(muon_of_pytorch) {
    std::ifstream file("tests/golden/muon.txt");
    for (const char* const model : {"gpt2", "lstm", "llama"})
        for (const TensorSpec& t : find_model(model)->tensors(small_shape(*find_model(model)))) {
            if (!muon_info.whole(t) || t.name.find("1") != t.name.npos) continue;       // the first layer's
            const Row row(t.name);
            std::string name;
            size_t rows;
            file >> name >> rows;
            EXPECT_EQ(name, t.name);
            EXPECT_EQ(rows, t.rows);
            uint32_t state = 1;
            const auto numbers = [&](size_t n) {
                std::vector<float> x(n);
                for (float& v : x) {
                    state = state * 1664525 + 1013904223;
                    v = float(int((state >> 16) % 129) - 64) / 64;
                }
                return x;
            };
            const auto padded = [&] {
                std::vector<float> x = numbers(t.rows * t.cols);
                x.resize(round_up(x.size(), kUnit));
                return x;
            };
            const std::vector<float> look = numbers(t.cols), start = padded();
            Updated arena(muon_info, start, std::vector<Rates>(start.size() / kUnit, {.decay = 1}));
            BACKEND::MatrixUpdate u = {arena.arguments(), find_optimizer("muon"), t, nullptr};
            const BACKEND::Device<char> work(BACKEND::muon_matrix(u, nullptr));
            u.work = work.at;
            for (int number = 1; number <= 4; number++) {
                arena.prepare(default_values(muon_info), padded(), number, 0, 1, 1);
                BACKEND::muon_matrix(u, nullptr);
                BACKEND::stream_sync(nullptr);
                const std::vector<float> w = arena.master.host();
                for (size_t r = 0; r < rows && number % 3 == 1; r++) {
                    double sum = 0, want;
                    for (size_t c = 0, i = r * t.cols; c < t.cols; c++, i++)
                        sum += double(w[i] - start[i]) * double(look[c]);
                    file >> want;
                    EXPECT(std::fabs(sum - want) < (kHalf ? 3e-3 : 5e-6), "update %d, row %zu: got %g, want %g", number,
                           r, sum, want);
                }
            }
        }
    EXPECT(file.good() && (file >> std::ws).eof(), "tests/golden/muon.txt has other tensors");
}

// Every operation without rows: nothing is written, and "=" makes parameter gradients 0. All inputs are NaN.
static void run_without_rows(int B, int T, float rate, bool accumulate, bool less) {
    const int C = 24, NH = 4, NK = 2, HS = 8, V = 20, Vp = 32;
    const size_t none = 0;
    Mask mask(rate), no_mask(0);
    Heads heads = {B, T, NH, NK, HS, mask}, nothing = {1, 0, NH, NK, HS, no_mask};
    Case c("");
    Tensor &x = c.out(kX, 600), &y = c.out(kX, 600), &z = c.out(kX, 600), &u = c.out(kFloat, 600),
           &v = c.out(kFloat, 600), &tokens = c.in(kInt, std::vector<float>(8, 1e9f)), &rates = c.in(kFloat, {1, 1, 0});
    const auto gradient = [&](int n) -> Tensor& {
        return c.inout(kFloat, accumulate ? normal(size_t(n)) : std::vector<float>(size_t(n), kNaN));
    };
    Tensor &matrix = gradient(C * C), &row = gradient(C), &shift = gradient(C);
    Tokens sizes = {B, T, C, mask, less ? &tokens : nullptr};
    Tensor *mean = less ? nullptr : &u, *bias = less ? nullptr : &z, *dbias = less ? nullptr : &shift;
    Norm norm = {0, C, &x, &y, mean, &v, &z, bias, 1e-5f};
    const auto expect = [&](const char* op, std::vector<const Tensor*> written) {
        for (const Tensor& t : c.tensors) {
            const bool zero = !accumulate && std::find(written.begin(), written.end(), &t) != written.end();
            for (size_t i = 0; i < t.start.size(); i++)
                for (const double value : {t.want[i], t.got[i]})
                    EXPECT(zero ? value == 0 : value == t.start[i] || (std::isnan(value) && std::isnan(t.start[i])),
                           "%s B=%d T=%d dropout=%g accumulate=%d less=%d: %s[%zu]: got %g, want %g", op, B, T, rate,
                           accumulate, less, t.name.c_str(), i, value, zero ? 0 : t.start[i]);
        }
    };
#define WRITES(op, gradients, ...) (c.what = #op, RUN(c, op, __VA_ARGS__), expect(#op, gradients))
#define LIST(...) {__VA_ARGS__}
    WRITES(embedding_forward, {}, x, tokens, y, bias, sizes);
    WRITES(layernorm_forward, {}, norm);
    WRITES(residual_layernorm_forward, {}, norm, x, y, mask);
    WRITES(matmul_forward, {}, x, y, z, bias, 0, C, C);
    WRITES(matmul_gelu_forward, {}, x, y, y, z, bias, 0, C, C);
    WRITES(gelu_forward, {}, x, y, none);
    WRITES(attention_forward, {}, x, u, y, heads);
    WRITES(attention_cached, {}, x, y, z, 3, 7, nothing);
    WRITES(classifier, {}, u, x, tokens, 0, V, Vp, !less);
    WRITES(embedding_backward, LIST(&matrix), v, matrix, x, tokens, C, sizes, accumulate);
    WRITES(layernorm_backward, LIST(&row, dbias), x, row, dbias, y, norm, less, accumulate);
    WRITES(dropout_backward, {}, x, y, none, mask);
    WRITES(matmul_backward_input, {}, x, y, z, 0, C, C);
    WRITES(matmul_gelu_backward_input, {}, x, y, z, x, 0, C, C);
    WRITES(matmul_backward_params, LIST(&matrix, dbias), matrix, dbias, x, y, 0, C, C, accumulate);
    WRITES(attention_backward, {}, x, u, y, z, y, v, heads);
    Arrays terms = {{&u, &v}, {}};
    WRITES(tree_reduce, {}, u, v, terms, 2, Tree::kBalanced, none);
    Arrays arrays = {{&matrix, &row}, {}};
    Updates updates = {none, {&x, &x}, u, arrays, v, rates, mask.state};
    WRITES(update, {}, 0, 0, updates);
#undef LIST
#undef WRITES
}
TEST(no_rows) {
    for (const int T : {0, 5})
        for (const float rate : kRates)
            for (const bool accumulate : {false, true})
                for (const bool less : {false, true}) run_without_rows(T ? 0 : 3, T, rate, accumulate, less);
    Case c("clip_scale of nothing");
    Tensor &state = c.inout(kFloat, std::vector<float>(sizeof(StepState) / sizeof(float), 7));
    Tensor &norm = c.out(kDouble, 1), &partials = c.in(kFloat, {kNaN});
    RUN(c, clip_scale, state, norm, partials, size_t(0), 0.5);
    c.same(norm);
    c.same(state);
    EXPECT_EQ(norm.got[0], 0);
}

// Written and found at the given places alone, with an array's start, end and padding as they are.
TEST(poison) {
    const size_t n = 3 * kUnit + 40, room = 5 * kUnit;
    const BACKEND::Device<float> array(room);
    const BACKEND::Device<uint64_t> result(1);
    float* const x = array.at;
    uint64_t* const left = result.at;
    const auto found = [&](size_t first, size_t count, size_t step) {
        BACKEND::find_poison(left, x + first, count, step, x + room);
        uint64_t now;
        BACKEND::copy_to_host(&now, left, sizeof now);
        BACKEND::device_zero(left, sizeof now);
        return now;
    };
    const auto put = [&](size_t at, uint32_t bits) {
        BACKEND::copy_to_device(x + at, &bits, sizeof bits);
        BACKEND::stream_sync(nullptr);
    };
    for (const size_t step : {size_t(1), kUnit}) {
        BACKEND::device_zero(x, room * sizeof(float));
        BACKEND::poison(x + kUnit, n, step);
        std::vector<uint32_t> bits(room);
        BACKEND::copy_to_host(bits.data(), x, room * sizeof(float));
        for (size_t i = 0; i < room; i++) {
            const bool inside = i >= kUnit && i < kUnit + n && (i - kUnit) % step == 0;
            EXPECT(bits[i] == (inside ? kPoison : 0), "step %zu: [%zu] is %x", step, i, bits[i]);
        }
        EXPECT(found(kUnit, n, step) == room - kUnit, "step %zu: not at its start", step);
        EXPECT(found(0, kUnit, step) == 0 && found(0, 0, step) == 0, "step %zu: where there is none", step);
    }
    BACKEND::device_zero(x, room * sizeof(float));
    for (const uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7fffffffu, kPoison ^ 1}) put(kUnit, nan);
    EXPECT_EQ(found(0, room, 1), 0);
    put(2 * kUnit + 1, kPoison);
    EXPECT(found(0, room, kUnit) == 0 && found(0, room, 1) == 3 * kUnit - 1, "a place that counts with step 1 alone");
    put(2 * kUnit, kPoison);
    put(kUnit, kPoison);
    BACKEND::find_poison(left, x + 2 * kUnit, kUnit, kUnit, x + room);
    EXPECT(found(kUnit, kUnit, kUnit) == 4 * kUnit, "the first of two ranges");
    BACKEND::find_poison(left, x + kUnit, kUnit, kUnit, x + room);
    EXPECT(found(2 * kUnit, kUnit, kUnit) == 4 * kUnit, "the first of two ranges, looked at first");
}

static uint64_t backend_hash(const std::vector<float>& x) {
    BACKEND::Device<float> p(x.size());
    if (!x.empty()) p.put(x);
    const uint64_t hash = BACKEND::hash_floats(p.at, x.size());
    BACKEND::set_threads(3);
    const uint64_t again = BACKEND::hash_floats(p.at, x.size());
    BACKEND::set_threads(2);
    EXPECT(hash == again, "n=%zu: with 3 threads another hash", x.size());
    return hash;
}

TEST(hash_floats) {
    for (const size_t n : {size_t(0), size_t(1), size_t(17), kUnit - 1, kUnit, kUnit + 1, 9 * kUnit, 9 * kUnit + 5}) {
        std::vector<float> x = normal(n);
        const uint64_t hash = backend_hash(x), want = SPEC::hash_floats(x.data(), n);
        EXPECT(hash == want, "n=%zu: got %016llx, want %016llx", n, (unsigned long long)hash, (unsigned long long)want);
        if (n == 0) continue;
        const auto differs = [&](const char* what) {
            EXPECT(backend_hash(x) != hash, "n=%zu: %s has the same hash", n, what);
        };
        for (const size_t i : {size_t(0), n / 2, n - 1}) {
            const float old = x[i];
            for (const uint32_t flip : {1u, 1u << 31, 1u << 22}) {
                x[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(old) ^ flip);
                differs("another bit");
            }
            x[i] = old;
        }
        x.push_back(0);
        differs("a zero behind");
        x.pop_back();
        if (n < 2) continue;
        std::swap(x[0], x[n - 1]);  // in one unit, or across units
        differs("a swap");
        std::swap(x[0], x[n - 1]);
        if (n < 2 * kUnit) continue;
        std::swap_ranges(x.begin(), x.begin() + kUnit, x.begin() + kUnit);
        differs("a swap of units");
    }
}

int main(int argc, char** argv) {
    const int code = run_tests(argc, argv);
    std::printf("the same bits: %zu elements of %zu arrays\n", Case::elements, Case::arrays);
    return code;
}
