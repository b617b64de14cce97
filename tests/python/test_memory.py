"""Objects that are taken as tensors, and where their bytes come from and go to. Neither a gateway
nor the library is needed.

Covers: python/tombolo/memory.py python/tombolo/library.py python/tombolo/publishing.py
"""

import array
import ctypes
import mmap
import sys

import packages  # noqa: F401: finds the package
from harness import SCENARIOS, Failed, expect, main, scenario

import tombolo
from tombolo.memory import refill, scatter, tensors_of, view_of
from tombolo.publishing import named_copies


def raised(kind, call, *words):
    try:
        call()
    except kind as error:
        for word in words:
            expect(f"{word!r} in {str(error)!r}", word in str(error), True)
        return error
    raise Failed(f"no {kind.__name__} was raised")


def bytes_of(view):
    return ctypes.string_at(view.address, view.nbytes)


@scenario
def elements_with_gaps_are_gathered_and_scattered(lab):
    """P1: a slice of a buffer with a step, forwards and backwards. Bytes between its elements stay."""
    for step in (2, -3, 1):
        whole = array.array("i", range(10))
        part = memoryview(whole)[::step]
        wanted = array.array("i", list(range(10))[::step])
        if step != 1:
            raised(ValueError, lambda part=part: view_of("layer.w", part), "layer.w", "not contiguous", "gather=True")
        view = view_of("layer.w", part, gather=True, writable=True)
        expect("dtype and shape", view[:2], ("I32", (len(wanted),)))
        expect("its elements", bytes_of(view), wanted.tobytes())
        ctypes.memmove(view.address, array.array("i", [-1] * len(wanted)).tobytes(), view.nbytes)
        if view.gathered is not None:
            scatter(view)
        expect("theirs alone changed", list(whole), [-1 if i in list(range(10))[::step] else i for i in range(10)])
        other = view_of("layer.w", wanted)
        refill(view, other)
        expect("refilled", bytes_of(view), wanted.tobytes())


@scenario
def memory_that_is_read_only_is_published_and_never_written_to(lab):
    """P1: bytes and a mapped file are as good as others for a publisher. No version is written there."""
    file = lab.dir / "file"
    file.write_bytes(b"of a file")
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for given in (b"of memory", mapped, memoryview(bytearray(b"bytearray")).toreadonly()):
            view = view_of("w", given)
            expect("bytes", (bytes_of(view), view.read_only), (bytes(given), True))
            view = view_of("w", ("U8", (len(given),), given))
            expect("of a tuple", (bytes_of(view), view.read_only), (bytes(given), True))
            raised(ValueError, lambda given=given: view_of("layer.w", given, writable=True), "layer.w", "read-only")
            raised(ValueError, lambda given=given: view_of("layer.w", ("U8", (9,), given), writable=True), "layer.w", "read-only")
            if given is mapped:
                raised(BufferError, mapped.close)  # while it is registered
            del view
    expect("none", view_of("w", b"")[1:3], ((0,), None))


def view_in(text, itemsize, memory):
    """A buffer that says of its items what no object of Python's own says."""
    class Facts(ctypes.Structure):
        _fields_ = [("address", ctypes.c_void_p), ("owner", ctypes.c_void_p), ("bytes", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                    ("readonly", ctypes.c_int), ("rank", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                    ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]
    shape, strides = (ctypes.c_ssize_t * 1)(len(memory) // itemsize), (ctypes.c_ssize_t * 1)(itemsize)
    facts = Facts(ctypes.addressof(ctypes.c_char.from_buffer(memory)), None, len(memory), itemsize, 0, 1, text, ctypes.addressof(shape),
                  ctypes.addressof(strides))
    make = ctypes.pythonapi.PyMemoryView_FromBuffer
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p]
    return make(ctypes.addressof(facts)), (shape, strides, facts, memory)


@scenario
def items_are_as_long_as_their_buffer_says(lab):
    """P1: "l" has four bytes or eight; a dtype is never read beyond its buffer."""
    memory = bytearray(range(8))
    for text, itemsize, wanted in ((b"=l", 4, ("I32", (2,))), (b"=L", 4, ("U32", (2,))), (b"@l", 8, ("I64", (1,))), (b"<l", 8, ("I64", (1,)))):
        view, keep = view_in(text, itemsize, memory)
        expect(f"{text} of {itemsize}", view_of("w", view)[:2], wanted)
        del view, keep
    for text, itemsize in ((b"f", 8), (b"d", 4), (b">f", 4), (b"T{f:x:}", 4)):
        view, keep = view_in(text, itemsize, memory)
        raised(ValueError, lambda view=view: view_of("layer.w", view), "layer.w", text.decode(), "has no dtype")
        del view, keep


@scenario
def a_wrong_argument_is_named(lab):
    """P10: no number is cut off to what fits, no tensor is lost under another's name, no dtype is guessed."""
    for what, wrong in (("no pairs", [array.array("B", b"abc")]), ("a tensor", array.array("B", b"ab")), ("a text", "ab"), ("none", None), ("a number", 3)):
        raised(TypeError, lambda wrong=wrong: tensors_of(wrong), "tensors are a module", type(wrong).__name__)
    raised(TypeError, lambda: tensors_of({1: b""}), "name is text", "int")
    raised(ValueError, lambda: tensors_of([("w", b"a"), ("v", b"b"), ("w", b"c")]), "w is given twice")
    raised(ValueError, lambda: tensors_of([]), "no tensors")
    raised(ValueError, lambda: view_of("layer.w", ("I4", (3,), bytearray(3))), "layer.w", "'I4'", "NAME:BITS")
    for wrong in (-1, 1 << 64):
        raised(ValueError, lambda wrong=wrong: tombolo.library.PublishOptions(number=wrong), "number", str(wrong))
    raised(TypeError, lambda: tombolo.library.PublishOptions(number=1.0), "number", "1.0")
    raised(ValueError, lambda: tombolo.library.PublishOptions(shard_count=1 << 32), "shard_count", "4294967295")
    expect("largest", tombolo.library.PublishOptions(number=(1 << 64) - 1).number, (1 << 64) - 1)
    for call, words in ((lambda: tombolo.Publisher("policy", mode="inplace"), ("mode", "shadow, in_place", "'inplace'")),
                        (lambda: tombolo.follow("policy", update="swap"), ("update", "copy, switch, patch", "'swap'")),
                        (lambda: tombolo.follow("policy", prove="no"), ("prove", "asked, always, never", "'no'"))):
        raised(ValueError, call, *words)  # before anybody is asked


@scenario
def tensors_that_do_not_stay_are_copied_whatever_they_are(lab):
    """P1: by name, into the memory of the call before. One of another shape gets another memory, and what is not given goes."""
    memory = {}
    first = named_copies([("w", array.array("H", [1, 2])), ("v", b"old"), ("gone", bytearray(1))], memory)
    places = {name: id(kept[2]) for name, kept in first.items()}
    second = named_copies(iter([("w", memoryview(array.array("H", [3, 9, 4]))[::2]), ("v", b"newer")]), memory)
    expect("kinds", {name: kept[:2] for name, kept in second.items()}, {"w": ("U16", (2,)), "v": ("U8", (5,))})
    expect("bytes", (array.array("H", bytes(second["w"][2])).tolist(), bytes(second["v"][2])), ([3, 4], b"newer"))
    expect("the same memory, and another", (id(second["w"][2]) == places["w"], id(second["v"][2]) == places["v"]), (True, False))
    expect("what is kept", sorted(memory), ["v", "w"])


if __name__ == "__main__":
    sys.argv[1:] = sys.argv[1:] or list(SCENARIOS)
    sys.exit(main())
