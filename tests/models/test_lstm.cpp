// test_lstm.cpp -- the LSTM against PyTorch's numbers (tests/golden/make_lstm.py), and its own operations against their
// formulas.
#include <map>
#include "models/lstm.h"
#include "tests/models/trial.h"

namespace BACKEND {         // the operations of lstm.cpp

void transpose_rows(void* out, const void* inp, int B, int T, size_t bytes);
void lstm_cell_forward(floatX* h, float* c, floatX* gates, const floatX* recurrent, const float* c_before, int B,
                       int channels);
void lstm_cell_backward(floatX* gates, float* dc, const floatX* dh, const floatX* dh_later, const float* c,
                        const float* c_before, int B, int channels);

}  // namespace BACKEND

using namespace BACKEND;

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Golden {
    std::map<std::string, std::vector<float>> values;
    int B, T, V, C, L;
    Golden() {
        std::istringstream text(read_file("tests/golden/lstm.txt"));
        std::string line;
        std::getline(text, line);
        std::istringstream(line) >> B >> T >> V >> C >> L;
        while (std::getline(text, line)) {
            size_t end = line.find(' ');
            if (end == 1) end = line.find(' ', 2);  // "d NAME"
            std::istringstream numbers(line.substr(end));
            for (float x; numbers >> x;) values[line.substr(0, end)].push_back(x);
        }
    }
    std::vector<int> ints(const char* name) { return {values[name].begin(), values[name].end()}; }
};

}  // namespace

TEST(loss_and_gradients_of_pytorch) {
    Golden golden;
    Shape shape = {.L = golden.L, .C = golden.C, .T = golden.T};
    set_vocabulary(&shape, golden.V);
    const Arena arena = arena_layout(lstm_tensors(shape));
    std::vector<float> w(arena.n);
    for (size_t t = 0; t < arena.tensors.size(); t++) {
        const std::vector<float>& x = golden.values[arena.tensors[t].name];
        EXPECT(x.size() == arena.tensors[t].file_rows * arena.tensors[t].cols, "%s", arena.tensors[t].name.c_str());
        for (size_t i = 0; i < x.size(); i++) w[arena.offset[t] + i] = x[i] / 64;
    }
    Trial t(lstm_info, shape, golden.B, golden.T, w);
    t.tokens = golden.ints("tokens");
    t.targets = golden.ints("targets");
    const double loss = t.backward().loss, want = double(golden.values["loss"][0]);
    EXPECT(std::fabs(loss - want) <= (kExact ? 1e-5 : 1e-2) * want, "loss: got %.9g, want %.9g", loss, want);
    const std::vector<float> got = t.grads.host();
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        const std::string name = "d " + arena.tensors[i].name;
        const std::vector<float>& d = golden.values[name];
        expect_near(&got[arena.offset[i]], d.data(), d.size(), kExact ? 1e-5 : 0.1, name);
    }
}

// The cell against double arithmetic; the large values reach where sigmoid and tanh are flat.
TEST(cell) {
    for (const auto& [B, C, scale] : {std::tuple{1, 8, 1.0f}, {3, 24, 0.1f}, {5, 264, 4.0f}, {2, 40, 200.0f}}) {
        const size_t n = size_t(B) * size_t(C), width = size_t(C);
        const auto x = numbers(4 * n, 1, scale), r = numbers(4 * n, 2, scale);
        const std::vector<float> before = numbers(n, 3, 1), dh = numbers(n, 4, 1), later = numbers(n, 5, 1),
                                 dc = numbers(n, 6, 1);
        const Device<floatX> recurrent(r), h(n), dy(dh);
        const Device<float> c(n), c_before(before);
        for (const bool last : {false, true}) {
            const Device<floatX> gates(x);
            const std::vector<float> zero(n, 0.0f);     // nothing comes from a step after the last
            const Device<floatX> dlater(last ? zero : later);
            const Device<float> dstate(last ? zero : dc);
            lstm_cell_forward(h.at, c.at, gates.at, recurrent.at, c_before.at, B, C);
            const std::vector<float> got_c = c.host(), got_h = h.host();
            lstm_cell_backward(gates.at, dstate.at, dy.at, dlater.at, c.at, c_before.at, B, C);
            std::vector<double> want_c(n), want_h(n), want_dc(n), want_d(4 * n);
            for (size_t e = 0; e < n; e++) {
                const size_t at = e / width * 4 * width + e % width;
                double z[4];
                for (size_t k = 0; k < 4; k++) z[k] = double(x[at + k * width]) + double(r[at + k * width]);
                const double i = sigmoid(z[0]), f = sigmoid(z[1]), g = std::tanh(z[2]), o = sigmoid(z[3]);
                const double state = f * double(before[e]) + i * g, tanh_c = std::tanh(state);
                const double d = double(dh[e]) + (last ? 0 : double(later[e]));
                const double ds = (last ? 0 : double(dc[e])) + d * o * (1 - tanh_c * tanh_c);
                want_c[e] = state;
                want_h[e] = o * tanh_c;
                want_dc[e] = ds * f;
                want_d[at] = ds * g * i * (1 - i);
                want_d[at + width] = ds * double(before[e]) * f * (1 - f);
                want_d[at + 2 * width] = ds * i * (1 - g * g);
                want_d[at + 3 * width] = d * tanh_c * o * (1 - o);
            }
            const double tol = kExact ? 1e-6 : 1e-2;
            expect_near(got_c.data(), want_c.data(), n, 1e-6, "c");
            expect_near(got_h.data(), want_h.data(), n, tol, "h");
            expect_near(gates.host().data(), want_d.data(), 4 * n, tol, "gates");
            expect_near(dstate.host().data(), want_dc.data(), n, tol, "dc");
        }
    }
}

TEST(rows_are_transposed_and_back) {
    for (const auto& [B, T, words] : {std::tuple{1, 1, 1}, {3, 5, 1}, {7, 2, 12}, {4, 33, 100}}) {
        const size_t n = size_t(B) * size_t(T) * size_t(words);
        std::vector<float> x(n);
        for (size_t i = 0; i < n; i++) x[i] = float(i);
        const Device<float> inp(x), out(n), back(n);
        transpose_rows(out.at, inp.at, B, T, size_t(words) * 4);
        transpose_rows(back.at, out.at, T, B, size_t(words) * 4);
        const std::vector<float> y = out.host();
        EXPECT_EQ(back.host(), x);
        for (int b = 0; b < B; b++)
            for (int t = 0; t < T; t++)
                EXPECT(y[size_t((t * B + b) * words)] == x[size_t((b * T + t) * words)], "row %d of sequence %d", t, b);
    }
}

TEST(no_rows) {
    const std::vector<float> before = numbers(256, 78, 1);
    Device<floatX> x(before), y(before);
    Device<float> f(before), g(before);
    transpose_rows(x.at, y.at, 0, 5, 8 * sizeof(floatX));
    transpose_rows(x.at, y.at, 3, 0, 8 * sizeof(floatX));
    lstm_cell_forward(x.at, f.at, y.at, x.at, g.at, 0, 8);
    lstm_cell_backward(x.at, f.at, y.at, y.at, g.at, g.at, 0, 8);
    EXPECT(x.host() == before && y.host() == before && f.host() == before && g.host() == before, "it is written");
}
