#!/usr/bin/env python3
# make_lstm.py -- PyTorch's loss and gradients of a small LSTM, tied head: lstm.txt, for tests/models/test_lstm.cpp.
# Run it in this folder; needs torch. Lines: "B T V C L", "tokens ...", "targets ...", "loss X" (the sum), "NAME ..."
# for each weight, times 64, and "d NAME ..." for its gradient.
import torch

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
B, T, V, C, L = 3, 5, 11, 8, 2


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(V, C)
        self.lstm = torch.nn.LSTM(C, C, L, batch_first=True)

    def forward(self, tokens):
        return self.lstm(self.embedding(tokens))[0] @ self.embedding.weight.T


model = Model()
with torch.no_grad():
    for p in model.parameters():
        p.copy_((torch.randn(p.shape) * 0.4 * 64).round() / 64)       # exact in bf16, too
tokens, targets = torch.randint(V, (B, T)), torch.randint(V, (B, T))
loss = torch.nn.functional.cross_entropy(model(tokens).view(-1, V), targets.view(-1), reduction="sum")
loss.backward()


def line(name, x):
    return name + " " + " ".join("%.7g" % v for v in x.flatten().tolist()) + "\n"


with open("lstm.txt", "w") as f:
    f.write(f"{B} {T} {V} {C} {L}\n" + line("tokens", tokens) + line("targets", targets) + line("loss", loss))
    for name, p in model.named_parameters():
        f.write(line(name, p * 64) + line("d " + name, p.grad))
