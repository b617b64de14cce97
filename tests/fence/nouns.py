#!/usr/bin/env python3
"""nouns.py ROOT: a noun belongs to one folder.

The noun of an external function of the product is what stands between "tb_" and the verb:

    tb_home_landing_done   the name of a file of its folder (home_landing.c), or of that file in the singular
    tb_chunk_frame_encode  a noun of several words that tests/fence/nouns lists
    tb_copy_evict          otherwise the first word

Functions of one noun stand in one folder. A folder and its parts are one: those of WHOLE, and a folder
of which the functions of that noun stand partly in folders below it. Functions of include/tombolo are
for others, who see no folders, so they have no noun. tests/fence/nouns may only shrink."""
import collections
import os
import re
import sys

import c_text

TOPS = ("base", "wan", "intra", "gateway")
LIST = "tests/fence/nouns"
WHOLE = ("gateway/catalog", "gateway/cli", "wan/link")  # one core, one program, one object
DECLARED = re.compile(r"\b(tb_\w+)\(")


def listed(root):
    """{noun: folder}"""
    lines = [line.partition("#")[0].split() for line in c_text.read(root, LIST).splitlines()]
    return dict(line for line in lines if line)


def public(root):
    return {name for header in c_text.product_files(root, ["include"]) for name in DECLARED.findall(c_text.read(root, header))}


def noun_of(function, stems, words_listed):
    words = function.split("_")[1:]
    for count in range(len(words), 1, -1):
        noun = "_".join(words[:count])
        if noun in stems or noun + "s" in stems or noun in words_listed:
            return noun
    return words[0]


def functions(root):
    """(folder, name) of each that other files can see."""
    for path in c_text.product_files(root, TOPS):
        if path.endswith(".c"):
            for function in c_text.functions(c_text.code_of(c_text.read(root, path))):
                if not function.static and function.name.startswith("tb_"):
                    yield os.path.dirname(path), function.name


def is_one(folders):
    """Whether one of them holds all others."""
    wholes = {next((w for w in WHOLE if (f + "/").startswith(w + "/")), f) for f in folders}
    return any(all((other + "/").startswith(top + "/") for other in wholes) for top in wholes)


def main():
    root = sys.argv[1]
    nouns, others, stems = listed(root), public(root), collections.defaultdict(set)
    for path in c_text.product_files(root, TOPS):
        stems[os.path.dirname(path)].add(os.path.basename(path).rsplit(".", 1)[0])
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    for folder, name in functions(root):
        if name not in others:
            found[noun_of(name, stems[folder], nouns)][folder].add(name)
    wrong = [f"{noun}: " + ", ".join(f"{min(names)} in {folder}" for folder, names in sorted(folders.items())) +
             ": a noun belongs to one folder" for noun, folders in sorted(found.items()) if not is_one(folders)]
    wrong += [f"{LIST}: {noun}: no function of {folder} has this noun: take the line out"
              for noun, folder in sorted(nouns.items()) if folder not in found.get(noun, ())]
    print("\n".join(wrong) if wrong else f"{len(found)} nouns, {len(nouns)} of them listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
