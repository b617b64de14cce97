"""c_text.py - C sources as fences read them: comments taken out, functions found, and calls
between files. Not a program.

A function: a definition with a body, outside of other bodies. Its lines: from its signature to
the closing brace. An assert: a match of the tree's own words for it, in code. A call: a name and
an opening parenthesis, where one file of the tree alone defines a function of that name that
other files can see. A circle: files that reach each other by such calls."""
import collections
import os
import re
import subprocess

TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)
SIGNATURE = re.compile(r"(\w+)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*(?:__attribute__\s*\(\(.*?\)\)|[A-Z_]+(?:\([^)]*\))?)?\s*$", re.S)
CALL = re.compile(r"\b([a-z]\w+)\s*\(")
NO_FUNCTION = {"if", "for", "while", "switch", "return", "sizeof", "do", "else", "defined", "typedef"}

Function = collections.namedtuple("Function", "name static first last")


def files(root, folders, ends):
    """Those that git knows, or all, where the tree is none of git's."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", *folders],
                            capture_output=True, text=True, check=False)
    names = listed.stdout.splitlines() if listed.returncode == 0 else [
        os.path.relpath(os.path.join(at, name), root)
        for folder in folders for at, _, inside in os.walk(os.path.join(root, folder)) for name in inside]
    return sorted(n for n in names if n.endswith(ends) and os.path.isfile(os.path.join(root, n)))


def product_files(root, folders):
    """C sources."""
    return files(root, folders, (".c", ".h"))


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as text:
        return text.read()


def blank(found):
    """Comments go; of strings the quotes stay. Lines keep their numbers."""
    words = found.group(0)
    return '""' if words[0] in "\"'" else re.sub(r"[^\n]", " ", words)


def code_of(text):
    return TEXT.sub(blank, text)


def functions(code):
    """Of code without comments."""
    code = DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), code)
    found, depth, head, opened = [], 0, 0, None
    for mark in re.finditer(r"[{};]", code):
        if mark.group(0) == "{":
            if depth == 0:
                opened = signature(code[head:mark.start()])
                if opened == "extern":  # extern "C" holds definitions, and is no body
                    head, opened = mark.end(), None
                    continue
                began = head + len(code[head:mark.start()]) - len(code[head:mark.start()].lstrip())
            depth += 1
        elif mark.group(0) == "}" and depth > 0:
            depth -= 1
            if depth == 0:
                if opened:
                    found.append(Function(*opened, code.count("\n", 0, began) + 1, code.count("\n", 0, mark.start()) + 1))
                head = mark.end()
        elif depth == 0:
            head = mark.end()
    return found


def signature(head):
    """(name, static) of a definition's words before its body, "extern", or None."""
    head = head.strip()
    if re.fullmatch(r'extern\s*""', head):
        return "extern"
    if ")" not in head or "=" in re.sub(r"\([^()]*\)", "", head):
        return None
    named = SIGNATURE.search(head)
    if named is None or named.group(1) in NO_FUNCTION:
        return None
    before = head[:named.start()]  # INLINE is a macro of kernels: static, and always inlined
    return named.group(1), re.search(r"\b(static|INLINE)\b", before) is not None


def circles(codes):
    """Of {file: code}: lists of files that call each other in circles, the largest first."""
    owners = collections.defaultdict(set)
    for name, code in codes.items():
        for function in functions(code):
            if not function.static:
                owners[function.name].add(name)
    owner = {function: next(iter(files)) for function, files in owners.items() if len(files) == 1}
    calls = {name: {owner[word] for word in CALL.findall(code) if owner.get(word, name) != name} for name, code in codes.items()}
    return sorted((sorted(c) for c in strongly_connected(calls) if len(c) > 1), key=lambda c: (-len(c), c))


def strongly_connected(graph):
    """Tarjan's algorithm, without recursion: a tree may have more files than Python has frames."""
    index, low, stack, on, out = {}, {}, [], set(), []
    for root in graph:
        work = [(root, iter(sorted(graph[root])))] if root not in index else []
        while work:
            node, others = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                on.add(node)
            for other in others:
                if other not in index:
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in on:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    out.append(stack[at:])
                    on -= set(stack[at:])
                    del stack[at:]
    return out
