"""Probes of hyper-connections, HC and mHC: several streams, and the matrices that read, transport and write them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from respath.measure.analyses.probes.plain import Probe


class HyperConnections(Probe):
    """Geometry sees the m streams side by side, (batch, time, m width); readout is the model's own collapse, HC's sum or mHC's mean."""

    #: Is the static transport what a softmax starts from, so that its entries have a sign that says something?
    static_is_logit = False

    def geometry(self, state: Any, block: int, mixes: bool = False) -> Tensor:
        """All streams, concatenated."""
        return state[0].flatten(-2)

    def parameters_of(self, k: int) -> dict[str, Tensor]:
        """All routing parameters, so that the stream that a branch reads moves with it."""
        return dict(self.stream.sublayers[k].named_parameters())

    @contextlib.contextmanager
    def routing(self, hear: Callable[[int, Tensor, Tensor, Tensor], None]) -> Iterator[None]:
        """Inside the block ``hear(k, read, transport, write)`` follows each sub-layer's routing, per token in float64.

        read (batch, time, m), transport (batch, time, m, m) with outputs as rows, write (batch, time, m).
        """

        def heard(k: int):
            def hook(module, arguments, result):
                mixes, writes = (part.double() for part in result)
                transport = mixes[..., 1:, :]
                if not self.stream.transports:
                    transport = (
                        torch.eye(self.stream.streams, dtype=torch.float64).to(transport).expand_as(transport)
                    )
                hear(k, mixes[..., 0, :], transport, writes)

            return hook

        with contextlib.ExitStack() as stack:
            for k, connection in enumerate(self.stream.sublayers):
                stack.callback(connection.register_forward_hook(heard(k)).remove)
            yield

    def path_weights(self, ids: Tensor) -> list[Tensor]:
        """Each stream as a combination of the embedding and the branches, carried from sub-layer to sub-layer."""
        m, sources = self.stream.streams, 2 * self.layers + 1
        parts = torch.zeros((*ids.shape, m, sources), dtype=torch.float64, device=ids.device)
        parts[..., 0] = 1.0
        found: list[Tensor] = []

        def hear(k, read, transport, write):
            nonlocal parts
            found.append((read[..., None, :] @ parts).squeeze(-2)[..., : k + 1])
            parts = transport @ parts
            parts[..., k + 1] += write

        with self.routing(hear):
            self.model.hidden(ids)
        # The collapse is linear: the sum of the streams or their mean, as the model's own close says.
        closed = self.stream.close((parts, None))
        return [*found, closed]

    def transport(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Product of all transports and mean size of their off-diagonal entries, per token.

        ids (batch, time) -> (batch, time, m, m) with the last sub-layer's leftmost, (batch, time); float64.
        """
        m = self.stream.streams
        product = torch.eye(m, dtype=torch.float64, device=ids.device).expand(*ids.shape, m, m)
        off = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)

        def hear(k, read, transport, write):
            nonlocal product, off
            product = transport @ product
            outside = transport.abs().sum((-2, -1)) - transport.diagonal(dim1=-2, dim2=-1).abs().sum(-1)
            off = off + outside / (m * (m - 1)) / (2 * self.layers)

        with self.routing(hear):
            self.model.hidden(ids)
        return product, off

    def gates(self) -> Tensor:
        """Gates of all sub-layers."""
        return torch.cat([one.gates.detach().double() for one in self.stream.sublayers])

    def static_transport(self) -> Tensor:
        """What the transports are without any input, (2 L, m, m) float64: A_static."""
        return torch.stack([one.transport.detach().double() for one in self.stream.sublayers])


class ManifoldHyperConnections(HyperConnections):
    """The static part is the bias of the logits that Sinkhorn's rounds start from."""

    static_is_logit = True

    def static_transport(self) -> Tensor:
        """b_res, (2 L, m, m) float64."""
        m = self.stream.streams
        return torch.stack([one.bias.detach().double()[2 * m :].view(m, m) for one in self.stream.sublayers])
