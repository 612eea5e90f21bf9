"""CUDA tensors without a GPU: shapes, devices and dtypes of every operation, and what a backward pass would keep.

PyTorch's CPU build refuses the device "cuda" for want of a device guard. One that does nothing, registered from a few
lines of C++, lets fake tensors (which have no data) carry that device; the operators' meta functions then check devices and
dtypes as they would on a GPU. Only forward passes run: the autograd engine asks for a real accelerator.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

_GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
static c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> guard;
static c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &guard);
"""


@functools.cache
def why_not() -> str:
    """Why there can be no fake CUDA here; empty when there can. Registers the guard, once per process."""
    if torch.cuda.is_available():
        return "this machine has a GPU"
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        return "no C++ compiler"
    package = Path(torch.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "guard.cpp"), Path(folder, "guard.so")
        source.write_text(_GUARD)
        command = [compiler, "-shared", "-fPIC", "-std=c++17", f"-I{package / 'include'}", str(source)]
        done = subprocess.run(
            [*command, "-o", str(library), f"-L{package / 'lib'}", "-lc10"], capture_output=True, text=True
        )
        if done.returncode:
            return f"the device guard does not compile: {done.stderr.strip().splitlines()[-1]}"
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return ""


def required() -> None:
    """Skip the test where there can be no fake CUDA."""
    if reason := why_not():
        pytest.skip(reason)


@contextlib.contextmanager
def fake_cuda():
    """Tensors made inside are fake; scaled_dot_product_attention takes the kernel that a GPU would choose."""
    real = F.scaled_dot_product_attention

    def chosen(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        # A build without CUDA knows only the kernel that holds all scores; a GPU takes flash where nothing stands against it.
        fits = q.dtype.itemsize == 2 and attn_mask is None
        if not fits:
            return real(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        repeats, width = q.shape[1] // k.shape[1], q.shape[-1]
        parts = [
            F.pad(x, (0, -width % 8))
            for x in (q, k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1))
        ]
        out = torch.ops.aten._scaled_dot_product_flash_attention(*parts, dropout_p, is_causal, scale=scale)
        return out[0][..., : v.shape[-1]]

    with FakeTensorMode(allow_non_fake_inputs=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", chosen)
        yield


def on_cuda(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A model of the meta device, its parameters (in ``dtype``) and buffers now fake CUDA tensors. Call inside ``fake_cuda``."""
    for module in model.modules():
        for name, tensor in module._parameters.items():
            if tensor is not None:
                empty = torch.empty(tensor.shape, dtype=dtype, device="cuda")
                module._parameters[name] = nn.Parameter(empty, requires_grad=tensor.requires_grad)
        for name, tensor in module._buffers.items():
            if tensor is not None:
                module._buffers[name] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")
    return model


def kept_bytes(model: nn.Module, forward) -> int:
    """Bytes of the distinct storages that ``forward()`` keeps for its backward pass, parameters left out."""
    kept, alive = {}, []

    def pack(tensor):
        alive.append(tensor)  # so that no address is used twice
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive.append(forward())
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    return sum(size for storage, size in kept.items() if storage not in own)
