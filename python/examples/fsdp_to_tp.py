"""Four ranks train with FSDP2 and publish what each has; an engine at TP 2 reads its own half.

    python fsdp_to_tp.py unix:/run/tombolo/session.sock

No rank gathers a tensor: each computes the box of its shard from its placements."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

import tombolo

RANKS, TP, HIDDEN = 4, 2, 64


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(HIDDEN, 4 * HIDDEN, bias=False), torch.nn.ReLU(), torch.nn.Linear(4 * HIDDEN, HIDDEN, bias=False))


def train(rank: int, gateway: str, folder: str) -> None:
    from torch.distributed.fsdp import fully_shard

    os.environ["TOMBOLO_RUN"] = "fsdp"  # torchrun's id, where there is one
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=RANKS)
    model = network()
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (RANKS,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, HIDDEN)).square().mean().backward()
    optimizer.step()
    tombolo.publish("policy", 1, model, gateway=gateway)  # a shard of the version
    whole = {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}  # to compare with, in this example
    if rank == 0:
        torch.save(whole, f"{folder}/whole.pt")
    dist.barrier()
    tombolo.close_publishers()
    dist.destroy_process_group()


def main(gateway: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ranks = processes.start_processes(train, (gateway, folder), nprocs=RANKS, join=False, start_method="fork")  # before a session is open
        up, down = torch.empty(TP, 4 * HIDDEN // TP, HIDDEN), torch.empty(TP, HIDDEN, 4 * HIDDEN // TP)
        readers = [tombolo.follow("policy", gateway=gateway, group="engine", member=(rank, TP), into=[
            tombolo.Box("0.weight", (4 * HIDDEN, HIDDEN), (rank * len(up[rank]), 0), tuple(up[rank].shape), up[rank]),
            tombolo.Box("2.weight", (HIDDEN, 4 * HIDDEN), (0, rank * down.shape[2]), tuple(down[rank].shape), down[rank])]) for rank in range(TP)]
        while not ranks.join():
            pass
        for reader in readers:
            reader.stage(1)
        for reader in readers:
            reader.apply()
        for reader in readers:
            reader.close()
        whole = torch.load(f"{folder}/whole.pt")
    same = torch.equal(up.flatten(0, 1), whole["0.weight"]) and torch.equal(torch.cat([*down], 1), whole["2.weight"])
    print(f"FSDP2 over {RANKS} ranks to TP {TP}: {'bit-exact' if same else 'DIFFERENT'}", flush=True)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
