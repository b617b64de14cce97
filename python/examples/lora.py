"""LoRA adapters as small versions beside their base: the base is published once, an adapter each step.

    python lora.py unix:/run/tombolo/session.sock

The gateway has two models, `base` and `adapter`."""

import sys

import torch

import tombolo

RANK = 4


class Lora(torch.nn.Module):
    """A linear layer whose weight stays, and two narrow matrices that are trained."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base = torch.nn.Linear(width, width, bias=False).requires_grad_(False)
        self.adapter = torch.nn.ParameterDict({"a": torch.randn(RANK, width) / width, "b": torch.zeros(width, RANK)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.adapter["a"].T @ self.adapter["b"].T


def main(gateway: str) -> None:
    torch.manual_seed(1)
    model, replica = Lora(512), Lora(512)
    optimizer = torch.optim.Adam(model.adapter.parameters(), lr=1e-2)
    base = tombolo.publish("base", 1, model.base, gateway=gateway)
    with tombolo.follow("base", into=replica.base, gateway=gateway) as reader:
        reader.next()
    with tombolo.follow("adapter", into=replica.adapter, gateway=gateway) as reader:
        for step in range(1, 4):
            model(torch.randn(16, 512)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            adapter = tombolo.publish("adapter", step, model.adapter, gateway=gateway, blobs={"adapter_config.json": b'{"r": 4}'})
            reader.next()
            x = torch.randn(4, 512)
            same = torch.equal(model(x), replica(x))
            print(f"step {step}: adapter {adapter.bytes} bytes beside a base of {base.bytes}, {'equal' if same else 'DIFFERENT'}", flush=True)
            if not same:
                sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
