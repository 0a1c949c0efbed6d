# SPDX-License-Identifier: Apache-2.0
"""Steps of torch's optimizers, for test_optim_torch.c to stand beside.

argv: a directory with `param` (n,) and `grads` (steps, n), fp32; then for each case one word
NAME:lr:beta1:beta2:eps:weight_decay:lr_decay:nesterov. Writes the parameters after the last step
to NAME's number, counting from 0, in the same directory.
"""

import sys

import numpy
import torch


def make(name, params, lr, beta1, beta2, eps, weight_decay, lr_decay, nesterov):
    if name == "sgd":
        return torch.optim.SGD(params, lr, momentum=beta1, dampening=beta2,
                               weight_decay=weight_decay, nesterov=nesterov != 0)
    if name == "adagrad":
        return torch.optim.Adagrad(params, lr, lr_decay=lr_decay, weight_decay=weight_decay,
                                   eps=eps)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    return kind(params, lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay)


def main():
    directory = sys.argv[1]
    first = numpy.fromfile(directory + "/param", dtype=numpy.float32)
    grads = numpy.fromfile(directory + "/grads", dtype=numpy.float32).reshape(-1, first.size)
    for number, word in enumerate(sys.argv[2:]):
        name, *values = word.split(":")
        param = torch.nn.Parameter(torch.from_numpy(first.copy()))
        optimizer = make(name, [param], *map(float, values))
        for grad in grads:
            param.grad = torch.from_numpy(grad.copy())
            optimizer.step()
        param.detach().numpy().tofile(f"{directory}/{number}")


main()
