// train.cpp -- the whole of training a GPT-2, in one file of plain loops without any library. Read this file first.
//
//     g++ -std=c++20 -O3 -march=native -ffp-contract=off -pthread learn/train.cpp -o train
//     ./train text.txt                            trains on a text of yours, or docs/log.md, and writes samples
//     ./train text.txt --layers 2 --steps 100     options have train_gpt's names and defaults: docs/options.md
//
// train_gpt, the big program of this repository, has the same ideas in their fast form, and takes a fifth of the time.
// In fp32 on a CPU both give the same losses to the last digit and the same weights to the last byte, with any number
// of ranks (tests/scripts/test_learn.sh). If you know PyTorch, this is the program:
//
//     for step in range(steps):                                     in this file
//         x, y = batch(step)                                        sections 1 to 3: text, random numbers, batches
//         loss = model(x, y)                                        sections 4 to 7: weights, sums, operations, GPT-2
//         loss.backward()                                           section 8: the same backwards
//         all_reduce(gradients)                                     section 9: the sum over replicas
//         clip_grad_norm(gradients); optimizer.step()               section 10: AdamW
//     evaluate(model); model.generate(prompt); save_file(model)     sections 11 and 12
//                                                                   section 13: ranks, and the loop itself
//
// Three words. A micro-batch is what one forward pass takes. A replica stands for a copy of the model that computes the
// gradients of some micro-batches. A rank does the work of one or more replicas; here it is a thread.
//
// Why the order of every sum is written down: floating-point numbers are rounded after each operation, so that
// (a + b) + c and a + (b + c) differ in their last bits. Here all orders are functions of the options, and none of the
// machine; docs/arithmetic.md lists them on two pages. fma(a, b, c) is a * b + c rounded once; -ffp-contract=off keeps
// the compiler from choosing, and -march=native makes fma one instruction, which is faster and gives the same bits.
#include <algorithm>
#include <barrier>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>
#include <sys/stat.h>
using std::fma, std::max, std::min, std::string, std::to_string, std::vector;

// Functions that C libraries round differently; section 14 defines them.
static double exp_(double x), log_(double x), pow_(double x, double y), sin_(double x, uint64_t quarters = 0);
static float exp_(float x), log_(float x);
static void flush_to_zero();

using In = const float*;                        // an array that a function reads
using Out = float*;                             // one that it writes
struct Array : vector<float> {                  // one that is made here; it may stand where one of those is expected
    using vector::vector;
    operator float*() { return data(); }
    operator const float*() const { return data(); }
};

// ------------------------------------------------------------------------------------------------------- 0. options
constexpr size_t kUnset = SIZE_MAX;             // follows from other options: see complete_options
static size_t B = 2, T = 256;                   // a micro-batch: B sequences of T tokens
static size_t L = 4, NH = 4, C = 128;           // each head has HS = C / NH channels
static size_t R = kUnset, W = kUnset;           // replicas; ranks
static size_t step_tokens = kUnset, steps = 480, warmup_steps = kUnset, seed = 1337;
static size_t eval_every = 240, eval_steps = 0, sample_every = 160, max_tokens = 256;
static double lr = 5e-3, final_lr_frac = 0.05, grad_clip = 1, beta1 = 0.9, beta2 = 0.99, weight_decay = 0.1;
static double dropout = 0, temperature = 0.8;
static string prompt, out_dir = ".";
constexpr size_t V = 257, Vp = 272;             // the vocabulary, and rounded up to 16 as fast matrix products like it
static const std::map<string, size_t*> integers = {     // their names
    {"--layers", &L}, {"--heads", &NH}, {"--channels", &C}, {"--batch-size", &B}, {"--seq-len", &T}, {"--np", &W},
    {"--replicas", &R}, {"--total-batch-size", &step_tokens}, {"--steps", &steps}, {"--warmup-steps", &warmup_steps},
    {"--seed", &seed}, {"--eval-every", &eval_every}, {"--eval-steps", &eval_steps}, {"--sample-every", &sample_every},
    {"--max-tokens", &max_tokens}};
static const std::map<string, double*> reals = {
    {"--lr", &lr}, {"--final-lr-frac", &final_lr_frac}, {"--grad-clip", &grad_clip}, {"--beta1", &beta1},
    {"--beta2", &beta2}, {"--weight-decay", &weight_decay}, {"--dropout", &dropout}, {"--temperature", &temperature}};

static size_t micro_batches() { return step_tokens / (B * T); }         // of a step

// Ends the program with an error unless something holds.
static void require(bool holds, const string& why) {
    if (holds) return;
    fprintf(stderr, "train: %s\n", why.c_str());
    exit(1);
}

// Sets what the command line names: a text, then names and values of options.
static void parse_options(int argc, char** argv) {
    require(argc > 1, "usage: train TEXT [--option value ...]; docs/options.md explains the options");
    for (int i = 2; i < argc; i += 2) {
        const string name = argv[i], word = i + 1 < argc ? argv[i + 1] : "";
        require(!word.empty(), name + ": want a value");
        const char* const end = word.data() + word.size();
        const char* read = end;                 // where the number ends
        if (integers.contains(name)) read = std::from_chars(word.data(), end, *integers.at(name)).ptr;
        else if (reals.contains(name)) read = std::from_chars(word.data(), end, *reals.at(name)).ptr;
        else if (name == "--prompt") prompt = word;
        else if (name == "--out-dir") out_dir = word;
        else require(false, name + ": no such option");
        require(read == end, name + ": want a number");
    }
}

// Checks the options, and computes those that were not given.
static void complete_options() {
    for (const size_t n : {L, NH, C, T, B, steps})
        require(n > 0 && n < 1 << 24, "got a size of 0 or above 16777215, want one between");
    require(C % NH == 0 && C / NH % 8 == 0 && C / NH <= 128, "--channels: want --heads times 8, 16, ... or 128");
    // A step has about 4096 tokens. bit_floor rounds down to a power of two.
    if (step_tokens == kUnset) step_tokens = B * T * std::bit_floor(max<size_t>(1, 4096 / (B * T)));
    const size_t n = micro_batches();
    require(n > 0 && step_tokens % (B * T) == 0, "--total-batch-size: want a multiple of --batch-size x --seq-len");
    if (R == kUnset) {
        R = 8;
        while (n % R != 0) R /= 2;              // the largest power of two up to 8 that divides n
    }
    require(std::has_single_bit(R) && n % R == 0, "--replicas: want a power of two that divides the micro-batches");
    if (W == kUnset) W = min(R, std::bit_floor(max<size_t>(1, std::thread::hardware_concurrency())));
    require(W > 0 && R % W == 0, "--np: want a divisor of --replicas");
    if (warmup_steps == kUnset) warmup_steps = min<size_t>(50, steps / 10);
}

// ------------------------------------------------------------------------------------------ 1. from a text to tokens
// A model computes with numbers, so that a text is turned into tokens first. Here a token is a byte. Larger
// vocabularies make texts shorter: most of GPT-2's 50,257 tokens are parts of words. Token 256 would end a text.
using Text = vector<uint8_t>;
struct Data { Text train, validation; };
// A sample has T inputs and as many targets, the tokens that follow them. Neighbours share one token.
static size_t count_samples(const Text& text) { return text.empty() ? 0 : (text.size() - 1) / T; }

// Reads a file and cuts it in two. The first nine tenths, counted in UTF-8 characters, are for training. The model
// never sees the rest: its loss there tells whether it has learned the language or only the text.
static Data read_data(const string& path) {
    std::ifstream file(path, std::ios::binary);
    require(bool(file), path + ": cannot open it");
    Text text{std::istreambuf_iterator<char>(file), {}};                               // all bytes
    if (text.size() >= 3 && text[0] == 0xEF && text[1] == 0xBB && text[2] == 0xBF)      // a byte order mark
        text.erase(text.begin(), text.begin() + 3);
    const auto begins = [](uint8_t byte) { return (byte & 0xC0) != 0x80; };             // a character
    size_t left = size_t(std::count_if(text.begin(), text.end(), begins)) * 9 / 10;
    auto cut = text.begin();
    while (cut < text.end() && !(begins(*cut) && left-- == 0)) cut++;
    const Data parts = {{text.begin(), cut}, {cut, text.end()}};
    require(count_samples(parts.train) > 0 && (eval_every == 0 || count_samples(parts.validation) > 0),
            path + ": want more text, more than --seq-len bytes in a tenth of it; or --eval-every 0");
    return parts;
}

// -------------------------------------------------------------------------------------------------- 2. random numbers
// PyTorch's generator is a stream with a state: who draws first changes what the others draw. Here a random number is
// a function of what it is for, so that ranks need no common order.
enum Purpose : uint32_t { kInit = 1, kData = 2, kSample = 3, kDropout = 0x100 };
struct Random4 { uint32_t v[4]; };

// Returns four random numbers of 32 bits, block i of those for a purpose and two more numbers, as a step and a
// micro-batch. Philox 4x32-10 (Salmon et al. 2011) multiplies and mixes all of these and the seed in ten rounds.
static Random4 random4(uint32_t purpose, uint32_t a, uint32_t b, uint64_t i) {
    uint32_t c0 = uint32_t(i), c1 = (uint32_t(i >> 32) & 0xffff) | purpose << 16, c2 = a, c3 = b;
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
        const uint64_t p0 = uint64_t(0xD2511F53) * c0, p1 = uint64_t(0xCD9E8D57) * c2;
        c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
        c1 = uint32_t(p1);
        c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
        c3 = uint32_t(p0);
    }
    return {{c0, c1, c2, c3}};
}

// Returns a number in [0, 1), made of the 24 highest bits, as many as a float holds.
static float uniform(uint32_t bits) { return float(bits >> 8) * (1.0f / 16777216); }

// ------------------------------------------------------------------------------------------ 3. from tokens to batches
// Returns the place of i in a random order of 0 .. n - 1, another order for each epoch. A list of n numbers is not
// needed: a Feistel network mixes the halves of i's bits, which permutes the numbers below a power of four. A result
// that is not below n is mixed again until it is: it moves on along its cycle, so that no two numbers meet.
static uint64_t permute(uint64_t i, uint64_t n, uint64_t epoch) {
    const int half = int(std::bit_width(n - 1) + 1) / 2;                // bits
    const uint64_t mask = (uint64_t(1) << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 8; round++) {
            left ^= random4(kData, uint32_t(epoch), uint32_t(epoch >> 32), round << 32 | right).v[0] & mask;
            std::swap(left, right);
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

struct Batch {
    vector<size_t> tokens, targets;             // (B,T)
    void add(const Text& text, size_t sample) {
        const uint8_t* const from = text.data() + sample * T;
        tokens.insert(tokens.end(), from, from + T);
        targets.insert(targets.end(), from + 1, from + 1 + T);
    }
};

// Returns micro-batch number k of a step. The run counts its samples: number c is in epoch c / n at place c mod n.
static Batch make_batch(const Text& text, size_t step, size_t k) {
    Batch batch;
    const size_t n = count_samples(text);
    for (size_t b = 0; b < B; b++) {
        const size_t c = (step * micro_batches() + k) * B + b;
        batch.add(text, permute(c % n, n, c / n));
    }
    return batch;
}

// ----------------------------------------------------------------------------------------------------- 4. the weights
// All weights lie in one array, tensor behind tensor, and so do gradients and AdamW's moments. So the sum over replicas
// and the update are loops over one array. A unit is a part of it that one rank sums, squares and updates as a whole.
constexpr size_t kUnit = 4096;                  // every tensor begins with a unit; between them are zeros
struct Tensor {
    string name;
    size_t rows, cols, file_rows;               // a weight is (outputs, inputs); wte has rows that belong to no token
    float std;                                  // of the first weights; 0: zeros, -1: ones
    bool is_matrix, transposed;                 // transposed: Hugging Face's files hold it as (inputs, outputs)
    size_t offset = 0;
};
static vector<Tensor> tensors;                  // wte, wpe, those of the blocks, then the final norm's two
static size_t elements = 0;                     // of all tensors, with the zeros between them

// Fills `tensors`; the names are Hugging Face's. The projections whose results are added to what went in begin
// smaller, so that the sum of all 2 L of them does not grow with the number of layers.
static void list_tensors() {
    const float s = 0.02f, residual = 0.02f / std::sqrt(2.0f * float(L));
    const auto add = [&](const string& name, size_t out, size_t in, float std) {    // out = 1: a norm, of `in` channels
        tensors.push_back({name + ".weight", out, in, out, std, out > 1, out > 1});
        tensors.push_back({name + ".bias", 1, out > 1 ? out : in, 1, 0, false, false});
    };
    tensors = {{"wte.weight", Vp, C, V, s, true, false}, {"wpe.weight", T, C, T, s, true, false}};
    for (size_t l = 0; l < L; l++) {
        const string h = "h." + to_string(l) + ".";
        add(h + "ln_1", 1, C, -1);
        add(h + "attn.c_attn", 3 * C, C, s);
        add(h + "attn.c_proj", C, C, residual);
        add(h + "ln_2", 1, C, -1);
        add(h + "mlp.c_fc", 4 * C, C, s);
        add(h + "mlp.c_proj", C, 4 * C, residual);
    }
    add("ln_f", 1, C, -1);
    for (Tensor& t : tensors) {
        t.offset = elements;
        elements += (t.rows * t.cols + kUnit - 1) / kUnit * kUnit;
    }
}

// A layer's two tensors in an array of weights, or in one of gradients, where F is float. bias may be null.
template <class F> struct LayerOf { F *weight, *bias; };
using Layer = LayerOf<const float>;
using Gradient = LayerOf<float>;
// Those of a block: ln1, ln2 (C); qkv (3C,C), whose rows are queries of all heads, then keys, then values; proj (C,C);
// fc (4C,C); fcproj (C,4C)
template <class F> struct BlockOf { LayerOf<F> ln1, qkv, proj, ln2, fc, fcproj; };

// Tensor i of an array, the layer that begins with it, the final norm, and block l.
template <class F> static F* tensor(F* array, size_t i) { return array + tensors[i].offset; }
template <class F> static LayerOf<F> layer_at(F* array, size_t i) { return {tensor(array, i), tensor(array, i + 1)}; }
template <class F> static LayerOf<F> final_norm(F* array) { return layer_at(array, 2 + 12 * L); }
template <class F> static BlockOf<F> block_of(F* array, size_t l) {
    const auto at = [&](size_t i) { return layer_at(array, 2 + 12 * l + 2 * i); };
    return {at(0), at(1), at(2), at(3), at(4), at(5)};
}

// Fills the weights: element i of tensor t is a function of the seed, t and i. Two uniform random numbers make two
// normally distributed ones, radius cos(angle) and radius sin(angle) (Box and Muller).
static void init_weights(Out weights) {
    for (size_t t = 0; t < tensors.size(); t++)
        for (size_t i = 0; i < tensors[t].file_rows * tensors[t].cols; i++) {
            const Random4 r = random4(kInit, uint32_t(t), 0, i / 4);
            const size_t pair = i % 4 / 2 * 2;          // 0 or 2: where the two begin that i is made of
            const double radius = std::sqrt(-2.0 * log_(1.0 - double(uniform(r.v[pair]))));
            const double angle = 2.0 * M_PI * double(uniform(r.v[pair + 1])), std = double(tensors[t].std);
            const float normal = float(std * radius * sin_(angle, i % 2 == 0 ? 1 : 0));         // 1: the cosine
            tensor(weights, t)[i] = std > 0 ? normal : std < 0 ? 1.0f : 0.0f;
        }
}

// ------------------------------------------------------------------------------------------------ 5. two kinds of sums
// Nearly all that a GPT computes is sums, mostly of two kinds. A sum along a row, as a mean, adds numbers that lie side
// by side. A CPU's vector adds 4, 8 or 16 at a time. There are 64 partial sums, so that all these CPUs give the same
// bits: 4 vectors of 16, so that an addition need not wait for the one before. A sum down the rows, as in a matrix
// product, adds whole rows, one after another: its columns lie side by side and need no partial sums. Only the
// gradients of LayerNorm's weights have some, because train_gpt gives each thread a block of rows.
constexpr size_t kPartialSums = 64;             // of a sum along a row
constexpr size_t kFewRows = 4;                  // so few rows times a matrix are sums along rows, as in generation
constexpr size_t kNormRows = 32;                // a block of rows, of the gradients of LayerNorm's weights

// Returns the sum of n terms; add(sum, i) adds term i to a partial sum. Partial sum j takes terms j, j + 64, ... in
// order. Then the upper half of the partial sums is added onto the lower half, until one is left.
template <class Add> static float sum_along(size_t n, const Add& add) {
    float part[kPartialSums] = {};
    for (size_t i = 0; i < n; i++) add(part[i % kPartialSums], i);
    for (size_t half = kPartialSums / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
}

// A row times a matrix; every product of matrices here is made of it. It is a sum down the rows:
// sums[j] = the sum over i < count of x[i * x_stride] rows[i * stride + j], for n columns j.
static void weighted_rows(Out sums, size_t n, size_t count, In x, size_t x_stride, In rows, size_t stride) {
    std::fill(sums, sums + n, 0.0f);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < n; j++) sums[j] = fma(x[i * x_stride], rows[i * stride + j], sums[j]);
}

// Returns the sum of n numbers in double: sum j of 256 takes x[j], x[j + 256], ...; then these are added in order.
static double sum_in_order(In x, size_t n) {
    double sums[256] = {};
    for (size_t i = 0; i < n; i++) sums[i % 256] += double(x[i]);
    return std::accumulate(sums, sums + 256, 0.0);
}

// Returns x, of rows of n numbers that begin `stride` apart, with rows and columns exchanged.
static Array transposed(In x, size_t rows, size_t n, size_t stride) {
    Array t(n * rows);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < n; j++) t[j * rows + i] = x[i * stride + j];
    return t;
}

// ---------------------------------------------------------------------------------------- 6. operations, and the loss
// What a pass through the model computes. An array of activations has N rows, one for each token: B T in training, as
// many as are left in an evaluation's last batch, and the text's tokens when one is generated. Dropout sets a random
// share of the activations to 0, so that a model cannot rely on any one, and multiplies the others by 1 / (1 - share),
// so that the average stays. drop(site, i) is the factor of element i at a site, a place in the model. Backward needs
// the same factors, and asks for them again.
struct Pass {
    size_t N;
    size_t step = 0, micro_batch = 0;
    bool training = false;
    float drop(size_t site, uint64_t i) const {
        const float rate = float(dropout);
        if (!training || rate == 0) return 1;
        const Random4 r = random4(kDropout + uint32_t(site), uint32_t(step), uint32_t(micro_batch), i / 4);
        return uniform(r.v[i % 4]) >= rate ? 1.0f / (1.0f - rate) : 0.0f;
    }
};
enum Site : size_t { kEmbedding = SIZE_MAX, kAttention = 0, kProjection, kMlp };        // block l adds 4 l

// out (N,C) = drop(wte[token] + wpe[position]): what a token is, and where it stands.
static void embedding_forward(Out out, const size_t* tokens, In wte, In wpe, const Pass& pass) {
    for (size_t n = 0; n < pass.N; n++)
        for (size_t c = 0; c < C; c++)
            out[n * C + c] = (wte[tokens[n] * C + c] + wpe[n % T * C + c]) * pass.drop(kEmbedding, n * C + c);
}

// Returns the mean of C numbers and 1 / sqrt(variance + 1e-5).
struct Moments { float mean, rstd; };
static Moments moments(In x) {
    const float mean = sum_along(C, [&](float& sum, size_t c) { sum += x[c]; }) / float(C);
    const float squares = sum_along(C, [&](float& sum, size_t c) { sum = fma(x[c] - mean, x[c] - mean, sum); });
    return {mean, 1.0f / std::sqrt(squares / float(C) + 1e-5f)};
}

// out (N,C) = (x - mean) rstd weight + bias: shifts and scales each row x of inp to mean 0 and variance 1, so that
// activations keep their size through all layers; then each channel has a scale and a shift that are learned.
static void layernorm_forward(Out out, In inp, Layer layer, size_t N) {
    for (size_t n = 0; n < N; n++) {
        const float* const x = inp + n * C;
        const auto [mean, rstd] = moments(x);
        for (size_t c = 0; c < C; c++) out[n * C + c] = fma((x[c] - mean) * rstd, layer.weight[c], layer.bias[c]);
    }
}

// out (N,O) = inp (N,I) weight (O,I)^T + bias (O), as torch.nn.Linear.
static void linear_forward(Out out, In inp, Layer layer, size_t N, size_t I, size_t O) {
    const bool few = N <= kFewRows;             // too few to be worth transposing the weights for
    const Array across = few ? Array() : transposed(layer.weight, O, I, I);
    for (size_t n = 0; n < N; n++) {
        const float* const x = inp + n * I;
        float* const y = out + n * O;
        if (!few) weighted_rows(y, O, I, x, 1, across, O);
        for (size_t o = 0; few && o < O; o++)
            y[o] = sum_along(I, [&](float& sum, size_t i) { sum = fma(x[i], layer.weight[o * I + i], sum); });
        for (size_t o = 0; layer.bias && o < O; o++) y[o] += layer.bias[o];
    }
}

// gelu(x) = x s, s = 1 / (1 + e^-2u) = (1 + tanh u) / 2, 2u = kTwiceK (x + kCubic x^3): about x for positive x, about 0
// for negative x, and smooth between. Its slope is s + x s', s' = s (1 - s) times the derivative of 2u.
constexpr float kTwiceK = 2 * 0.7978845608f, kCubic = 0.044715f;        // K = sqrt(2 / pi)
struct Gelu { float value, slope; };
static Gelu gelu(float x) {
    const float minus_2u = x * fma(x * x, -kTwiceK * kCubic, -kTwiceK);
    const float e = exp_(min(80.0f, minus_2u)), s = 1.0f / (1.0f + e);          // 1 - s = e s
    return {x * s, fma(s * (e * s), x * fma(x * x, 3 * kTwiceK * kCubic, kTwiceK), s)};
}

static void gelu_forward(Out out, In pre, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = gelu(pre[i]).value;
}

// out = inp + drop(branch): a layer adds to what is there, the residual stream, instead of replacing it.
static void add_residual(Out out, In inp, In branch, const Pass& pass, size_t site) {
    for (size_t i = 0; i < pass.N * C; i++) out[i] = fma(branch[i], pass.drop(site, i), inp[i]);
}

// out_t = sum over u <= t of drop(p_tu) v_u, p_tu = softmax over u of q_t.k_u / sqrt(HS). Position t asks a question,
// q_t. Every position u up to t has a key k_u, which says how well it answers, and a value v_u, which it answers. Later
// positions take no part, as the model must not see what it shall predict. lse_t is the logarithm of the softmax's
// denominator; with it backward computes p again.     qkv (B,T,3,NH,HS), out (B,T,NH,HS), lse (B,NH,T)
static void attention_forward(Out out, Out lse, In qkv, const Pass& pass, size_t site) {
    const size_t HS = C / NH, stride = 3 * C;
    const float scale = 1.0f / std::sqrt(float(HS));
    Array p(T);
    for (size_t head = 0; head / NH * T < pass.N; head++) {
        // `head` counts the heads of all sequences. Its rows, its channels and its part of lse begin at these.
        const size_t row = head / NH * T, channel = head % NH * HS, scores = head * T;
        const size_t end = min(T, pass.N - row);
        const float *q = qkv + row * stride + channel, *k = q + C, *v = k + C;
        const Array kt = transposed(k, end, HS, stride);                // (HS,end)
        for (size_t t = 0; t < end; t++) {
            weighted_rows(p, t + 1, HS, q + t * stride, 1, kt, end);            // q_t.k_u for all u <= t
            // e^(x - largest) instead of e^x, which may be infinite: their quotients are the same.
            const float largest = *std::max_element(p.begin(), p.begin() + ptrdiff_t(t + 1));
            for (size_t u = 0; u <= t; u++) p[u] = exp_(scale * (p[u] - largest));
            const float total = std::accumulate(p.begin(), p.begin() + ptrdiff_t(t + 1), 0.0f);
            lse[scores + t] = fma(scale, largest, log_(total));
            for (size_t u = 0; u <= t; u++) p[u] *= pass.drop(site, (scores + t) * T + u);
            float* const y = out + (row + t) * C + channel;
            weighted_rows(y, HS, t + 1, p, 1, v, stride);
            for (size_t i = 0; i < HS; i++) y[i] /= total;
        }
    }
}

// losses_n = -log p[target], p = softmax of row n of the logits (N,Vp): how surprised the model is by the next token.
// The logits become their gradient, p, less 1 at the target: training pushes the target's logit up and all others down.
// They are gradients of the sum of the losses: adamw divides by the step's tokens. Columns V .. Vp - 1 belong to no
// token and take no part.
static void classifier(Out losses, Out logits, const size_t* targets, size_t N) {
    for (size_t n = 0; n < N; n++) {
        float* const x = logits + n * Vp;
        const float largest = *std::max_element(x, x + V), score = x[targets[n]] - largest;
        for (size_t j = 0; j < V; j++) x[j] = exp_(x[j] - largest);
        const float total = sum_along(V, [&](float& sum, size_t j) { sum += x[j]; });
        losses[n] = log_(total) - score;
        x[targets[n]] -= total;
        for (size_t j = 0; j < Vp; j++) x[j] = j < V ? x[j] / total : 0.0f;
    }
}

// -------------------------------------------------------------------------------------------------- 7. GPT-2, forward
//     x = wte[token] + wpe[position]
//     x = x + proj(attention(qkv(ln1(x))))           in each layer tokens exchange information,
//     x = x + fcproj(gelu(fc(ln2(x))))               then each is processed by itself
//     logits = lnf(x) wte^T                          the matrix that reads tokens writes them, too

// What forward leaves for backward. The model's end is block L, which uses only x and ln1: the final norm.
struct Block {
    size_t N = B * T;
    Array x = Array(N * C), ln1 = Array(N * C);         // x: the residual stream as the block finds it
    Array qkv = Array(N * 3 * C), att = Array(N * C), lse = Array(N * NH);
    Array mid = Array(N * C), ln2 = Array(N * C);       // mid: the residual stream after attention
    Array fc = Array(N * 4 * C), gelu = Array(N * 4 * C);
};

using Model = vector<Block>;                            // L + 1

// Computes all activations from the tokens. The last, m[L].ln1, is what the logits are computed from.
static void forward(Model& m, In weights, const size_t* tokens, const Pass& pass) {
    const size_t N = pass.N;
    Array branch(N * C);                        // what joins the residual stream next
    embedding_forward(m[0].x, tokens, tensor(weights, 0), tensor(weights, 1), pass);
    for (size_t l = 0; l < L; l++) {
        Block& b = m[l];
        const auto w = block_of(weights, l);
        layernorm_forward(b.ln1, b.x, w.ln1, N);
        linear_forward(b.qkv, b.ln1, w.qkv, N, C, 3 * C);
        attention_forward(b.att, b.lse, b.qkv, pass, 4 * l + kAttention);
        linear_forward(branch, b.att, w.proj, N, C, C);
        add_residual(b.mid, b.x, branch, pass, 4 * l + kProjection);

        layernorm_forward(b.ln2, b.mid, w.ln2, N);
        linear_forward(b.fc, b.ln2, w.fc, N, C, 4 * C);
        gelu_forward(b.gelu, b.fc, N * 4 * C);
        linear_forward(branch, b.gelu, w.fcproj, N, 4 * C, C);
        add_residual(m[l + 1].x, b.mid, branch, pass, 4 * l + kMlp);
    }
    layernorm_forward(m[L].ln1, m[L].x, final_norm(weights), N);
}

// -------------------------------------------------------------------------------------------------------- 8. backward
// dx, the gradient of x, says how much the loss grows when x does. PyTorch's autograd finds gradients by the chain
// rule, from the last operation back to the first; here the rule of each operation is written out. Where x is used
// twice its gradients are added. A weight is used in every row, so that its gradient is a sum over rows. The sum is
// complete before it is added to what earlier micro-batches left, but for wte's, to which each token adds. A step
// begins with zeros, as after zero_grad().

// Adds complete sums to a gradient.
static void add_to(Out gradient, In sums, size_t n) {
    for (size_t i = 0; i < n; i++) gradient[i] += sums[i];
}

// dinp (N,I) = dout (N,O) weight (O,I); dweight += dout^T inp; dbias += the sum of dout's rows.
static void linear_backward(Out dinp, Gradient d, In dout, In inp, Layer layer, size_t N, size_t I, size_t O) {
    for (size_t n = 0; n < N; n++) weighted_rows(dinp + n * I, I, O, dout + n * O, 1, layer.weight, I);
    Array sums(I), bias(O);
    for (size_t o = 0; o < O; o++) {
        weighted_rows(sums, I, N, dout + o, O, inp, I);
        add_to(d.weight + o * I, sums, I);
    }
    if (!d.bias) return;
    for (size_t i = 0; i < N * O; i++) bias[i % O] += dout[i];
    add_to(d.bias, bias, O);
}

// dpre = dout gelu'(pre). dpre may be dout.
static void gelu_backward(Out dpre, In dout, In pre, size_t n) {
    for (size_t i = 0; i < n; i++) dpre[i] = dout[i] * gelu(pre[i]).slope;
}

// dx += rstd (g - average(g) - xhat average(g xhat)), xhat = (x - mean) rstd, g = dout weight. The averages stand there
// because mean and rstd depend on x, too. dweight += the sum over rows of dout xhat, dbias += that of dout.
static void layernorm_backward(Out dx, Gradient d, In dout, In x, Layer layer) {
    Array xhat(C), g(C), dweight(C), dbias(C), w(C), b(C);      // dweight, dbias: of blocks of rows; w, b: of one block
    for (size_t n = 0; n < B * T; n++, dx += C, dout += C, x += C) {
        const auto [mean, rstd] = moments(x);
        for (size_t c = 0; c < C; c++) {
            xhat[c] = (x[c] - mean) * rstd;
            g[c] = dout[c] * layer.weight[c];
            w[c] = fma(dout[c], xhat[c], w[c]);
            b[c] += dout[c];
        }
        const float gm = sum_along(C, [&](float& sum, size_t c) { sum += g[c]; }) / float(C);
        const float gx = sum_along(C, [&](float& sum, size_t c) { sum = fma(g[c], xhat[c], sum); }) / float(C);
        for (size_t c = 0; c < C; c++) dx[c] = fma(rstd, fma(-xhat[c], gx, g[c] - gm), dx[c]);
        if ((n + 1) % kNormRows != 0 && n + 1 < B * T) continue;
        add_to(dweight, w, C);
        add_to(dbias, b, C);
        w = b = Array(C);
    }
    add_to(d.weight, dweight, C);
    add_to(d.bias, dbias, C);
}

// dqkv, with m_tu the factor of dropout:
//     dv_u = sum over t >= u of m_tu p_tu dout_t
//     dp_tu = m_tu (dout_t . v_u),    ds_tu = p_tu (dp_tu - delta_t) / sqrt(HS),    delta_t = dout_t . out_t
//     dq_t = sum over u <= t of ds_tu k_u,    dk_u = sum over t >= u of ds_tu q_t
// delta is there because a softmax sums to 1: when one probability rises the others fall.
static void attention_backward(Out dqkv, In dout, In qkv, In out, In lse, const Pass& pass, size_t site) {
    const size_t HS = C / NH, stride = 3 * C;
    const float scale = 1.0f / std::sqrt(float(HS));
    Array p(T * T), ds(T * T), s(T), dp(T);     // p, ds: (t,u)
    for (size_t head = 0; head < B * NH; head++) {
        const size_t row = head / NH * T, channel = head % NH * HS, scores = head * T;     // where they begin
        const float *q = qkv + row * stride + channel, *k = q + C, *v = k + C;
        const Array kt = transposed(k, T, HS, stride), vt = transposed(v, T, HS, stride);
        for (size_t t = 0; t < T; t++) {
            const float *o = out + (row + t) * C + channel, *d = dout + (row + t) * C + channel;
            weighted_rows(s, t + 1, HS, q + t * stride, 1, kt, T);
            weighted_rows(dp, t + 1, HS, d, 1, vt, T);
            const float delta = sum_along(HS, [&](float& sum, size_t i) { sum = fma(o[i], d[i], sum); });
            for (size_t u = 0; u <= t; u++) s[u] = exp_(fma(scale, s[u], -lse[scores + t]));    // p_tu
            for (size_t u = 0; u <= t; u++) {
                const float m = pass.drop(site, (scores + t) * T + u);
                p[t * T + u] = s[u] * m;
                ds[t * T + u] = s[u] * fma(m, dp[u], -delta) * scale;
            }
        }
        for (size_t t = 0; t < T; t++) {        // as a query, then as a key
            float *dq = dqkv + (row + t) * stride + channel, *dk = dq + C, *dv = dk + C;
            weighted_rows(dq, HS, t + 1, ds + t * T, 1, k, stride);
            weighted_rows(dk, HS, T - t, ds + t * T + t, T, q + t * stride, stride);
            weighted_rows(dv, HS, T - t, p + t * T + t, T, dout + (row + t) * C + channel, C);
        }
    }
}

// dinp = drop(dout): what dropout set to 0 has no influence.
static void dropout_backward(Out dinp, In dout, const Pass& pass, size_t site) {
    for (size_t i = 0; i < B * T * C; i++) dinp[i] = dout[i] * pass.drop(site, i);
}

// dwte[token] += drop(dout) for every place where the token stands, in order; dwpe += the sum over sequences.
static void embedding_backward(Out dwte, Out dwpe, In dout, const vector<size_t>& tokens, const Pass& pass) {
    Array sums(T * C);
    for (size_t n = 0; n < B * T; n++)
        for (size_t c = 0; c < C; c++) {
            const float d = dout[n * C + c], factor = pass.drop(kEmbedding, n * C + c);
            float &token = dwte[tokens[n] * C + c], &position = sums[n % T * C + c];
            token = fma(d, factor, token);
            position = fma(d, factor, position);
        }
    add_to(dwpe, sums, T * C);
}

// Returns the sum of the losses, of m[L].ln1. If dhidden is not null it is computed, and dwte's part is added. The
// logits of all rows would take too much memory, so that it takes a chunk of rows at a time, at most 64 MiB of logits.
static double logits_and_loss(Out dhidden, Out dwte, In wte, const Model& m, const Batch& batch) {
    const size_t N = batch.tokens.size(), chunk = min(N, (size_t(1) << 24) / Vp / 64 * 64);
    Array logits(chunk * Vp), losses(N);
    for (size_t row = 0; row < N; row += chunk) {
        const size_t rows = min(chunk, N - row);
        const float* const hidden = m[L].ln1 + row * C;
        linear_forward(logits, hidden, {wte, nullptr}, rows, C, Vp);
        classifier(losses + row, logits, batch.targets.data() + row, rows);
        if (dhidden) linear_backward(dhidden + row * C, {dwte, nullptr}, logits, hidden, {wte, nullptr}, rows, C, Vp);
    }
    return sum_in_order(losses, N);
}

// Adds a micro-batch's gradients to `grads`, and returns the sum of its losses. The loop mirrors forward's, read from
// its end. dresidual is the gradient of the residual stream: each branch reads it, and adds to it through its norm.
static double forward_backward(Model& m, Out grads, In weights, const Batch& batch, size_t step, size_t number) {
    const size_t N = B * T;
    const Pass pass = {N, step, number, true};
    Array dnorm(N * C), dresidual(N * C), dbranch(N * C), dwide(N * 4 * C);
    forward(m, weights, batch.tokens.data(), pass);
    const double loss = logits_and_loss(dnorm, tensor(grads, 0), tensor(weights, 0), m, batch);
    layernorm_backward(dresidual, final_norm(grads), dnorm, m[L].x, final_norm(weights));
    for (size_t l = L; l-- > 0;) {              // L - 1 .. 0
        const Block& b = m[l];
        const auto w = block_of(weights, l);
        const auto d = block_of(grads, l);
        dropout_backward(dbranch, dresidual, pass, 4 * l + kMlp);
        linear_backward(dwide, d.fcproj, dbranch, b.gelu, w.fcproj, N, 4 * C, C);
        gelu_backward(dwide, dwide, b.fc, N * 4 * C);
        linear_backward(dnorm, d.fc, dwide, b.ln2, w.fc, N, C, 4 * C);
        layernorm_backward(dresidual, d.ln2, dnorm, b.mid, w.ln2);

        dropout_backward(dbranch, dresidual, pass, 4 * l + kProjection);
        linear_backward(dnorm, d.proj, dbranch, b.att, w.proj, N, C, C);
        attention_backward(dwide, dnorm, b.qkv, b.att, b.lse, pass, 4 * l + kAttention);
        linear_backward(dnorm, d.qkv, dwide, b.ln1, w.qkv, N, C, 3 * C);
        layernorm_backward(dresidual, d.ln1, dnorm, b.x, w.ln1);
    }
    embedding_backward(tensor(grads, 0), tensor(grads, 1), dresidual, batch.tokens, pass);
    return loss;
}

// ----------------------------------------------------------------------------------------- 9. the sum over replicas
// In PyTorch's DDP a rank is a replica, and the order in which gradients are added depends on the number of ranks: 4
// and 8 GPUs give other bits. Here the number of replicas belongs to the run, and gradients meet in one binary tree,
// with 8 replicas ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Whoever adds, the bits are the same.

// Returns element i of the sum of replicas lo .. lo + n - 1. grads: (replicas, elements)
static float tree(In grads, size_t lo, size_t n, size_t i) {
    if (n == 1) return grads[lo * elements + i];
    return tree(grads, lo, n / 2, i) + tree(grads, lo + n / 2, n / 2, i);
}

// Returns the sum of squares of a unit: sum j of 16 takes elements j, j + 16, ...; then these are added in order. The
// norm is made of those of all units, in order, so that it does not matter which rank has which units.
static float sum_of_squares(In unit) {
    float sums[16] = {};
    for (size_t i = 0; i < kUnit; i++) sums[i % 16] += unit[i] * unit[i];
    return std::accumulate(sums, sums + 16, 0.0f);
}

// ---------------------------------------------------------------------------------------------------------- 10. AdamW
// Returns the learning rate of a step. It rises in a straight line, because the first gradients of a fresh model are no
// guide, and falls along half a wave of a cosine, because small steps settle.
static double learning_rate(size_t step) {
    const double s = double(step + 1), warmup = double(warmup_steps);
    if (step < warmup_steps) return lr * (s / warmup);
    const double u = (s - warmup) / (double(steps) - warmup);             // 0 .. 1
    return lr * (final_lr_frac + (1 - final_lr_frac) * 0.5 * (1 + sin_(M_PI * u, 1)));         // 1: the cosine
}

// Updates the weights begin .. end - 1. Gradients are sums over the step's tokens: `scale` makes them averages, and
// shorter where their norm is above --grad-clip, so that one strange batch cannot throw the weights far away. m and v
// are running averages of the gradient and of its square; they begin at 0, for which the biases make up. A weight moves
// by about the learning rate, whatever its gradient's size; a matrix's shrinks a little, too.
static void adamw(Out weights, Out m, Out v, In grads, size_t begin, size_t end, size_t step, float rate, double norm) {
    const double clip = grad_clip > 0 ? std::fmin(1, grad_clip / (norm + 1e-6)) : 1;
    const float scale = float(clip / double(step_tokens)), b1 = float(beta1), b2 = float(beta2), eps = 1e-8f;
    const float bias1 = float(1 - pow_(beta1, double(step + 1))), bias2 = float(1 - pow_(beta2, double(step + 1)));
    for (const Tensor& t : tensors)
        for (size_t i = max(begin, t.offset); i < min(end, t.offset + t.rows * t.cols); i++) {
            const float g = grads[i] * scale, decay = t.is_matrix ? float(weight_decay) : 0.0f;
            m[i] = b1 * m[i] + (1 - b1) * g;
            v[i] = b2 * v[i] + (1 - b2) * (g * g);
            const float direction = (m[i] / bias1) / (std::sqrt(v[i] / bias2) + eps);
            weights[i] = weights[i] - rate * (direction + decay * weights[i]);
        }
}

// ----------------------------------------------------------------------------------- 11. an evaluation, and a sample
// Returns the average loss over the validation part, without dropout, in batches of B samples.
static double evaluate(Model& m, In weights, const Text& text) {
    const size_t samples = min(count_samples(text), eval_steps > 0 ? eval_steps * B : SIZE_MAX);
    double total = 0;
    for (size_t first = 0; first < samples; first += B) {
        Batch batch;
        for (size_t i = first; i < min(samples, first + B); i++) batch.add(text, i);
        forward(m, weights, batch.tokens.data(), {batch.tokens.size()});
        total += logits_and_loss(nullptr, nullptr, tensor(weights, 0), m, batch);
    }
    return total / double(samples * T);
}

// Returns the next token, drawn with probability e^(logit / temperature) / total. Probabilities are taken from the
// largest to the smallest. The random number is a function of position and step.
static size_t sample_token(In logits, size_t position, size_t step) {
    vector<size_t> order(V);
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    if (temperature <= 0) return order[0];
    vector<double> p;
    double total = 0;
    for (const size_t token : order) {
        const double x = exp_((double(logits[token]) - double(logits[order[0]])) / temperature);
        if (total + x == total) break;          // too unlikely to count
        total += x;
        p.push_back(x);
    }
    const Random4 r = random4(kSample, uint32_t(step), 0, position);
    double u = (double(r.v[0]) * 0x1p32 + double(r.v[1])) / 0x1p64 * total;
    size_t i = 0;
    while (i + 1 < p.size() && u >= p[i]) u -= p[i++];
    return order[i];
}

// Prints the prompt and continues it: each token joins the text, from which the next one is predicted. Here the whole
// text passes through the model for each new token. train_gpt computes only the new token's row, and keeps the keys and
// values of the earlier ones; that is called a KV cache. Its products then have few rows (kFewRows), so that its logits
// may differ from these in their last bits. When the context is full its older half is dropped.
static void print_sample(Model& m, In weights, size_t step) {
    Array logits(Vp);
    vector<size_t> text;
    for (const char c : prompt.empty() ? "\n" : prompt) text.push_back(uint8_t(c));
    size_t begin = text.size() > T ? text.size() - T : 0;       // of the context
    printf("sample step %zu\n%s", step, prompt.c_str());
    for (size_t i = 0; i < max_tokens; i++) {
        if (text.size() - begin > T) begin = text.size() - max<size_t>(1, T / 2);
        const size_t N = text.size() - begin;
        forward(m, weights, &text[begin], {N});
        linear_forward(logits, m[L].ln1 + (N - 1) * C, {tensor(weights, 0), nullptr}, 1, C, Vp);
        text.push_back(sample_token(logits, text.size(), step));
        if (text.back() < 256) putchar(int(text.back()));
    }
    putchar('\n');
}

// ---------------------------------------------------------------------------------------------- 12. the model's file
// Writes the weights in Hugging Face's format, safetensors: the length of a JSON header, the header with each tensor's
// name, shape and place, then the numbers. R"(a text)" is a text that may have quotation marks in it.
static void save(const string& path, In weights) {
    const auto pair = [](size_t a, size_t b) { return "[" + to_string(a).append(",") + to_string(b) + "]"; };
    string header = R"({"__metadata__":{"format":"pt"})", numbers;
    for (const Tensor& t : tensors) {
        const float* const x = weights + t.offset;
        const Array turned = t.transposed ? transposed(x, t.rows, t.cols, t.cols) : Array(x, x + t.file_rows * t.cols);
        const string matrix = t.transposed ? pair(t.cols, t.rows) : pair(t.file_rows, t.cols);
        header += R"(,"transformer.)" + t.name + R"(":{"dtype":"F32","shape":)";
        header += t.is_matrix ? matrix : "[" + to_string(t.cols).append("]");
        header += R"(,"data_offsets":)" + pair(numbers.size(), numbers.size() + turned.size() * sizeof(float)) + "}";
        numbers.append(reinterpret_cast<const char*>(turned.data()), turned.size() * sizeof(float));
    }
    header += "}";
    header.resize((8 + header.size() + 63) / 64 * 64 - 8, ' ');         // the numbers begin at a multiple of 64
    const uint64_t length = header.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length) << header << numbers;
    require(bool(file.flush()), path + ": cannot write it");
}

// --------------------------------------------------------------------------------- 13. ranks, and the training loop
// Ranks are threads here, which all see the same memory. train_gpt's are processes, of one machine or of several.
// Between machines there would be a reduce-scatter where they wait first, which gives each rank its share of all
// gradients, and an all-gather of the weights where they wait last. A rank updates its share of the units and keeps
// their moments, as in PyTorch's ZeroRedundancyOptimizer.
struct Shared {
    Array weights = Array(elements), m = Array(elements), v = Array(elements);
    Array grads = Array(R * elements);                          // (replicas, elements)
    Array squares = Array(elements / kUnit);                    // of the gradient, unit by unit
    vector<double> losses = vector<double>(micro_batches());
    std::barrier<> meeting = std::barrier(ptrdiff_t(W));        // arrive_and_wait waits until all ranks are there
};

// Does a rank's part of a step: the gradients of its replicas, then sum and update of its share of the units.
static void train_step(Shared& s, const Text& text, Model& model, size_t rank, size_t step) {
    const size_t G = micro_batches(), units = elements / kUnit;
    for (size_t k = rank * G / W; k < (rank + 1) * G / W; k++) {
        float* const grads = s.grads + k / (G / R) * elements;          // of micro-batch k's replica
        if (k % (G / R) == 0) std::fill(grads, grads + elements, 0.0f);
        s.losses[k] = forward_backward(model, grads, s.weights, make_batch(text, step, k), step, k);
    }
    s.meeting.arrive_and_wait();                // all gradients are there
    const size_t begin = units * rank / W * kUnit, end = units * (rank + 1) / W * kUnit;
    for (size_t i = begin; i < end; i++) s.grads[i] = tree(s.grads, 0, R, i);
    for (size_t i = begin; i < end; i += kUnit) s.squares[i / kUnit] = sum_of_squares(s.grads + i);
    s.meeting.arrive_and_wait();                // all sums of squares are there; each rank computes the same norm
    const double norm = std::sqrt(sum_in_order(s.squares, units)) / double(step_tokens);
    const double loss = std::accumulate(s.losses.begin(), s.losses.end(), 0.0) / double(step_tokens);
    const float rate = float(learning_rate(step));
    if (rank == 0) printf("step %zu loss %.17g lr %.17g norm %.17g\n", step, loss, double(rate), norm);
    if (std::isfinite(norm)) adamw(s.weights, s.m, s.v, s.grads, begin, end, step, rate, norm);
    s.meeting.arrive_and_wait();                // all weights are new, and all sums have been read
}

// Trains, as one of the ranks. Rank 0 also evaluates and samples.
static void train(Shared& s, const Data& parts, size_t rank) {
    flush_to_zero();
    Model model(L + 1);
    for (size_t step = 1; step <= steps; step++) {
        train_step(s, parts.train, model, rank, step - 1);
        const auto due = [&](size_t every) { return every > 0 && (step % every == 0 || step == steps); };
        if (rank == 0 && due(eval_every))
            printf("val step %zu loss %.17g\n", step, evaluate(model, s.weights, parts.validation));
        if (rank == 0 && due(sample_every)) print_sample(model, s.weights, step);
        fflush(stdout);
    }
}

// Sets up, starts the ranks, waits for them, and saves.
int main(int argc, char** argv) {
    parse_options(argc, argv);
    complete_options();
    const Data parts = read_data(argv[1]);
    list_tensors();
    mkdir(out_dir.c_str(), 0777);
    Shared s;
    init_weights(s.weights);
    vector<std::thread> ranks;
    for (size_t rank = 0; rank < W; rank++) ranks.emplace_back([&, rank] { train(s, parts, rank); });
    for (std::thread& rank : ranks) rank.join();
    save(out_dir + "/model.safetensors", s.weights);
}

// -------------------------------------------------------------- 14. functions that C libraries round differently
// IEEE 754 says how +, -, *, / and square roots are rounded, but not how exp, log and sin are. So these are made of the
// former. Each reduces its argument to a short interval, and sums a Taylor series there. 0x1.8p52 is 1.5 times 2^52: so
// written, a number is not rounded. bit_cast takes the same bits for a number of another type.
constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;           // ln 2; n kLn2High is exact
constexpr double kQuarterHigh = 0x1.921fb544p+0, kQuarterLow = 0x1.0b4611a626331p-34;   // pi / 2
constexpr double kToInteger = 0x1.8p52;         // adding it leaves a whole number in the lowest bits

// Returns 1 / n! + x / (n + step)! + x^2 / (n + 2 step)! + ... + x^k / last!, added from the last term on.
static double taylor(double x, int n, int step, int last) {
    double factorial = 1;
    for (int k = 2; k <= n; k++) factorial *= k;
    return n == last ? 1 / factorial : 1 / factorial + x * taylor(x, n + step, step, last);
}

// x = 2^n m with sqrt(1/2) <= m < sqrt(2): log x = n ln 2 + 2 artanh(s), s = (m - 1) / (m + 1).
static double log_(double x) {
    constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcd;                  // the bits of sqrt(1/2)
    const uint64_t bits = std::bit_cast<uint64_t>(x) - kRootHalf;
    const double n = double(int64_t(bits) >> 52), m = std::bit_cast<double>((bits & 0xfffffffffffff) + kRootHalf);
    const double s = (m - 1) / (m + 1), z = s * s;
    double tail = 0;
    for (int k = 21; k >= 3; k -= 2) tail = 2. / k + z * tail;
    return n * kLn2High + (2 * s + (s * z * tail + n * kLn2Low));
}
static float log_(float x) { return float(log_(double(x))) + (x - x); }         // x - x: 0, or NaN if x is not finite

// x = n ln 2 + r: e^x = 2^n e^r.
static double exp_(double x) {
    if (x < -708) return 0;
    const double shifted = x * (1 / (kLn2High + kLn2Low)) + kToInteger, n = shifted - kToInteger;
    const double r = (x - n * kLn2High) - n * kLn2Low;
    return taylor(r, 0, 1, 13) * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

// The same in float, by fused multiply-adds. The lowest bits of `shifted` are n + 127, the exponent's bits of 2^n.
static float exp_(float x) {
    const float shifted = fma(x, 1.44269504f, 0x1.8p23f + 127), n = shifted - (0x1.8p23f + 127);
    const float r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
    float p = 1.0f / 5040;
    for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = fma(p, r, c);
    return x < -87.3f ? 0.0f : p * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}

static double pow_(double x, double y) { return x > 0 ? exp_(y * log_(x)) : 0; }

// Returns sin(x + quarters pi / 2). With x = n pi / 2 + r it is plus or minus the sine or the cosine of r.
static double sin_(double x, uint64_t quarters) {
    const double shifted = x * (1 / (kQuarterHigh + kQuarterLow)) + kToInteger, n = shifted - kToInteger;
    const double r = (x - n * kQuarterHigh) - n * kQuarterLow, z = -(r * r);
    const uint64_t turn = std::bit_cast<uint64_t>(shifted) + quarters;
    const double size = turn & 1 ? taylor(z, 0, 2, 16) : r * taylor(z, 1, 2, 15);
    return turn & 2 ? -size : size;
}

// Makes this thread take numbers below 1.2e-38 for 0, because some CPUs need a hundred times as long for them.
#if defined(__x86_64__)
static void flush_to_zero() { __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); }
#elif defined(__aarch64__)
static void flush_to_zero() { asm volatile("msr fpcr, %0" : : "r"(uint64_t(1) << 24)); }
#else
static void flush_to_zero() {}
#endif
