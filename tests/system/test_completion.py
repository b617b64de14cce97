"""Completion of bash, zsh and fish: each offers what the table of commands has and what the gateway
knows (P10).

Covers: gateway/cli/completion.c
"""

import os
import shutil
import subprocess
import sys

from harness import TOMBOLO, Failed, Skipped, Trainer, expect, main, scenario, wait_for

# The line so far, and what may follow; the first need no gateway.
OF_THE_TABLE = (
    (["pki", "is"], ["issue"]),
    (["sub"], ["subscribe"]),
    (["pki", "issue", "--st"], ["--start-days"]),
    (["--json", "ver"], ["verify", "versions"]),
    (["lag", "--output", ""], ["json", "tsv", "wide"]),
    (["-o", "w"], ["wide"]),
    (["sites", "--sort", "mod"], ["model", "models"]),
    (["describe", "gr"], ["group"]),
    (["help", "config", "ex"], ["explain"]),
    (["colour", ""], []),
    (["--colour", ""], []),
)
OF_THE_GATEWAY = (
    (["lag", "pol"], ["policy"]),
    (["versions", "--no-headers", ""], ["other", "policy"]),
    (["pin", "policy", "1:"], ["1:1", "1:2"]),
    (["withdraw", "other", ""], []),
    (["limit", ""], ["west"]),
    (["describe", "site", ""], ["east", "west"]),
    (["describe", "version", "policy/1:"], ["policy/1:1", "policy/1:2"]),
    (["publish", "policy", "x", "--wait", "w"], ["west"]),
)


def candidates(words, env=None):
    done = subprocess.run([TOMBOLO, "help", "--candidates", "--", *words], capture_output=True, text=True, check=True, env=env)
    return sorted(line.split("\t")[0] for line in done.stdout.splitlines())


def offers(words, offered, ask):
    """The gateway has a second to answer. Where a busy machine takes that from it nothing is offered, as when it is
    not there, and it is asked again."""
    found = ask() if not offered else wait_for(f"something is offered for {words}", ask)
    expect(f"{words}", found, offered)


def two_models(lab):
    """East, with two versions of policy, and the environment that leads to it."""
    east = lab.site("east")
    east.models.update(policy=dict(home="east"), other=dict(home="east"))
    east.peers["west"] = None
    east.start()
    trainer = Trainer(lab, east, lab.weights(1)[0])
    for number in (1, 2):
        trainer.publish(number)
    return dict(os.environ, TOMBOLO_CONTROL=str(east.control_socket), PATH=f"{TOMBOLO.parent}:{os.environ['PATH']}")


@scenario
def the_next_word_is_known(lab):
    """P10: commands, options, their values and the gateway's names; without a gateway no names, and
    no complaint."""
    env = two_models(lab)
    for words, offered in (*OF_THE_TABLE, *OF_THE_GATEWAY):
        offers(words, offered, lambda words=words: candidates(words, env))
    expect("a path", candidates(["publish", "policy", ""], env), [":files"])
    expect("a path as a value", candidates(["status", "--control", "/t"], env), [":files"])
    offers("a model, by --control", ["policy"], lambda: candidates(["lag", "--control", env["TOMBOLO_CONTROL"], "pol"]))
    nobody = dict(env, TOMBOLO_CONTROL=str(lab.dir / "nobody.sock"))
    expect("nobody answers", candidates(["lag", ""], nobody), [])
    expect("options, all the same", "--why" in candidates(["lag", "--"], nobody), True)


def asked(shell, script, words, env):
    """The offers of the shell; the script prints a candidate a line."""
    done = subprocess.run([*shell, script.format(words=" ".join(words))], capture_output=True, text=True, env=env, check=False)
    if done.stderr:
        raise Failed(f"{shell[0]}: {words}: {done.stderr}")
    return sorted(line.split("\t")[0].replace("\\:", ":") for line in done.stdout.splitlines() if line)


def need(shell):
    if shutil.which(shell) is None:
        raise Skipped(f"no {shell} here")


@scenario
def bash_completes(lab):
    """P10: As bash calls it: the line as it is written; what stands behind the last colon is what
    it wants."""
    env = two_models(lab)
    (lab.dir / "completion").write_text(lab.tombolo("help", "--completion").stdout)
    script = (f'source {lab.dir}/completion; COMP_LINE="tombolo {{words}}"; COMP_POINT=${{{{#COMP_LINE}}}}; _tombolo; '
              'printf "%s\\n" "${{COMPREPLY[@]}}"')
    for words, offered in (*OF_THE_TABLE, *OF_THE_GATEWAY):
        behind = words[-1].rpartition(":")[0]
        offers(words, [w[len(behind) + 1 if behind else 0:] for w in offered], lambda words=words: asked(["bash", "-c"], script, words, env))
    expect("a file", asked(["bash", "-c"], script, ["publish", "policy", f"{lab.dir}/comp"], env), [f"{lab.dir}/completion"])


@scenario
def zsh_completes(lab):
    """P10: As zsh calls it, with what it would describe printed."""
    need("zsh")
    env = two_models(lab)
    (lab.dir / "completion").write_text(lab.tombolo("help", "--completion-zsh").stdout)
    script = ("compdef() {{ }}; _files() {{ print :files }}; _describe() {{ print -rl -- ${{candidates%%:[^:]#}} }}; setopt extendedglob; "
              f"source {lab.dir}/completion; words=(tombolo {{words}}); [[ '{{words}}' == *' ' ]] && words+=(''); CURRENT=${{{{#words}}}}; _tombolo")
    for words, offered in (*OF_THE_TABLE, *OF_THE_GATEWAY):
        offers(words, offered, lambda words=words: [f for f in asked(["zsh", "-fc"], script, words, env) if not f.startswith(":")])
    expect("a file", asked(["zsh", "-fc"], script, ["publish", "policy", "x"], env), [":files"])


@scenario
def fish_completes(lab):
    """P10: The offers of fish for the line."""
    need("fish")
    env = dict(two_models(lab), HOME=str(lab.dir), XDG_CONFIG_HOME=str(lab.dir / "config"))
    (lab.dir / "completion").write_text(lab.tombolo("help", "--completion-fish").stdout)
    script = f"source {lab.dir}/completion; complete -C 'tombolo {{words}}'"
    for words, offered in (*OF_THE_TABLE, *OF_THE_GATEWAY):
        offers(words, offered, lambda words=words: asked(["fish", "--no-config", "-c"], script, words, env))
    expect("a file", asked(["fish", "--no-config", "-c"], script, ["publish", "policy", f"{lab.dir}/comp"], env), [f"{lab.dir}/completion"])


if __name__ == "__main__":
    sys.exit(main())
