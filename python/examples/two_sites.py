"""A model is trained at one site, and follows at another: each optimizer step is a version, bit-exact.

    python two_sites.py unix:/run/tombolo/east.sock unix:/run/tombolo/west.sock

`policy` has its home at the first site, and the second one subscribes to it."""

import sys

import torch

import tombolo

STEPS = 5


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(512, 64), torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64),
                                torch.nn.LayerNorm(64), torch.nn.Linear(64, 512, bias=False))
    model[5].weight = model[0].weight  # tied
    return model.to(torch.bfloat16)


def main(trainer_gateway: str, reader_gateway: str) -> None:
    model, replica = network(), network()
    with torch.no_grad():
        for parameter in replica.parameters():
            parameter.zero_()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tombolo.follow("policy", into=replica, gateway=reader_gateway) as reader:
        for step in range(1, STEPS + 1):
            tokens = torch.randint(512, (8, 16))
            loss = torch.nn.functional.cross_entropy(model(tokens)[:, :-1].reshape(-1, 512).float(), tokens[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            version = tombolo.publish("policy", step, model, gateway=trainer_gateway)
            reader.stage(step)  # while the replica serves
            reader.apply()      # in its pause
            same = all(torch.equal(mine, yours) for mine, yours in zip(model.state_dict().values(), replica.state_dict().values()))
            print(f"step {step}: loss {loss.item():.3f}, {version!r}, {'bit-exact' if same else 'DIFFERENT'}", flush=True)
            if not same:
                sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
