"""The digest of a policy's weights, which trainer and engines compare bit for bit."""

import hashlib

import torch


def digest_of(tensors: dict[str, torch.Tensor]) -> str:
    """SHA-256 of all names and bytes."""
    made = hashlib.sha256()
    for name in sorted(tensors):
        made.update(name.encode())
        made.update(tensors[name].detach().contiguous().view(torch.uint8).numpy().tobytes())
    return made.hexdigest()
