"""Nets that overhead is measured on take the same time whatever numbers run through them."""

from __future__ import annotations

import overhead_cases
import torch


def test_gradients_of_the_deep_net_are_normal_floats() -> None:
    case = overhead_cases.build("tiny-layers")
    model = case.make_model()
    case.loss(model, next(iter(case.loader))).backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    sizes = gradients.abs()
    assert sizes.median() > 1e-6, "tiny numbers are slow on CPUs, and how slow depends on the data"
    assert (sizes < torch.finfo(torch.float32).tiny).float().mean() < 0.001
