// by_hand.cpp -- a loss and its gradients on numbers that fit on a page: 2 examples of 3 features, 4 classes.
//
//     g++ -std=c++20 learn/by_hand.cpp -o by_hand && ./by_hand
//
// docs/tour.md explains what it prints. In PyTorch it is
//
//     logits = x @ w.T                            x (2,3), w (4,3), logits (2,4)
//     loss = torch.nn.functional.cross_entropy(logits, torch.tensor([2, 0]))
//     loss.backward()                             x.grad, w.grad
//
// A derivative of the loss is called d + the name of the number that changes, by convention. The second half
// does the same for a row of LayerNorm, which learn/layernorm.md explains.
#include <cmath>
#include <cstdio>

constexpr int N = 2, C = 3, V = 4;                      // examples, features, classes
static double x[N][C] = {{1, 2, -1}, {0.5, -1, 2}};
static double w[V][C] = {{0.2, -0.1, 0.4}, {-0.3, 0.5, 0.1}, {0.6, 0.2, -0.2}, {0.1, 0.3, 0.3}};
static const int target[N] = {2, 0};
static double logits[N][V], p[N][V];                    // p: probabilities, of each example 1 in sum

static double forward() {
    double loss = 0;
    for (int n = 0; n < N; n++) {
        double sum = 0;
        for (int v = 0; v < V; v++) {
            logits[n][v] = 0;
            for (int c = 0; c < C; c++) logits[n][v] += x[n][c] * w[v][c];
            sum += std::exp(logits[n][v]);
        }
        for (int v = 0; v < V; v++) p[n][v] = std::exp(logits[n][v]) / sum;
        loss -= std::log(p[n][target[n]]) / N;          // the mean over examples
    }
    return loss;
}

static double dlogits[N][V], dx[N][C], dw[V][C];

static void backward() {
    // The loss of an example is log(sum) - logit of its target. The first term's derivative is p, the second's is 1.
    for (int n = 0; n < N; n++)
        for (int v = 0; v < V; v++) dlogits[n][v] = (p[n][v] - (v == target[n])) / N;
    // x[n][c] is in the logits of all V classes, each time with the factor w[v][c]: dx is a sum over v.
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++)
            for (int v = 0; v < V; v++) dx[n][c] += dlogits[n][v] * w[v][c];
    // w[v][c] is in the logits of all N examples: dw is a sum over n. Data parallelism cuts this sum.
    for (int v = 0; v < V; v++)
        for (int c = 0; c < C; c++)
            for (int n = 0; n < N; n++) dw[v][c] += dlogits[n][v] * x[n][c];
}

template <int Rows, int Cols> static void print(const char* name, const double (&m)[Rows][Cols]) {
    for (int r = 0; r < Rows; r++) {
        printf("%-10s", r == 0 ? name : "");
        for (int c = 0; c < Cols; c++) printf("%8.4f", m[r][c]);
        printf("\n");
    }
}

// Returns how much the loss changes for each unit of a number, tried a little above and a little below it.
static double measured(double* number, double (*forward)()) {
    constexpr double kStep = 1e-6;
    const double at = *number;
    *number = at + kStep;
    const double above = forward();
    *number = at - kStep;
    const double below = forward();
    *number = at;
    return (above - below) / (2 * kStep);
}

// LayerNorm of one row: out = norm * weight, without a bias. dout is given: the loss is the sum of dout * out.
static double row[1][V] = {{1, 3, 0, 4}}, weight[1][V] = {{1, 0.5, -1, 2}}, dout[1][V] = {{0.3, -0.2, 0.1, 0.4}};
static double norm[1][V], scale, drow[1][V], dweight[1][V];

static double layernorm_forward() {
    double mean = 0, variance = 0, loss = 0;
    for (const double number : row[0]) mean += number / V;
    for (const double number : row[0]) variance += (number - mean) * (number - mean) / V;
    scale = 1 / std::sqrt(variance);
    for (int c = 0; c < V; c++) {
        norm[0][c] = (row[0][c] - mean) * scale;
        loss += dout[0][c] * norm[0][c] * weight[0][c];
    }
    return loss;
}

static void layernorm_backward() {
    double a = 0, b = 0;
    for (int c = 0; c < V; c++) {
        const double d = dout[0][c] * weight[0][c];
        a += d / V;
        b += d * norm[0][c] / V;
        dweight[0][c] = dout[0][c] * norm[0][c];
    }
    for (int c = 0; c < V; c++) drow[0][c] = (dout[0][c] * weight[0][c] - a - norm[0][c] * b) * scale;
    printf("a%17.4f\nb%17.4f\n", a, b);
}

int main() {
    const double loss = forward();
    backward();
    print("x", x);
    print("w", w);
    print("logits", logits);
    print("p", p);
    printf("%-10s%8.4f\n", "loss", loss);
    print("dlogits", dlogits);
    print("dx", dx);
    print("dw", dw);
    double worst = 0;
    for (int c = 0; c < C; c++) {
        for (int n = 0; n < N; n++) worst = std::fmax(worst, std::fabs(measured(&x[n][c], forward) - dx[n][c]));
        for (int v = 0; v < V; v++) worst = std::fmax(worst, std::fabs(measured(&w[v][c], forward) - dw[v][c]));
    }
    printf("gradients and measured slopes agree: %s\n\n", worst < 1e-8 ? "yes" : "no");
    layernorm_forward();
    print("x", row);
    print("weight", weight);
    print("dout", dout);
    printf("scale%13.4f\n", scale);
    print("norm", norm);
    layernorm_backward();
    print("dx", drow);
    print("dweight", dweight);
    for (int c = 0; c < V; c++) {
        worst = std::fmax(worst, std::fabs(measured(&row[0][c], layernorm_forward) - drow[0][c]));
        worst = std::fmax(worst, std::fabs(measured(&weight[0][c], layernorm_forward) - dweight[0][c]));
    }
    printf("gradients and measured slopes agree: %s\n", worst < 1e-8 ? "yes" : "no");
    return worst < 1e-8 ? 0 : 1;
}
