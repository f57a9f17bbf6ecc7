"""`stash launch`: a profile as a job of Slurm, SkyPilot or Kubernetes, printed or submitted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from stash.launch.job import Job
    from stash.results.profile import Profile

#: Options of `stash profile` that a job decides by itself.
DECIDED = ("--node-rank", "--rdzv-endpoint")

app = typer.Typer(
    help="A profile as a job: generated and printed, or submitted (--submit).",
    no_args_is_help=True,
)


class _Passing(TyperCommand):
    """Keeps what follows `--` apart: it belongs to the user's script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, tail = args, []
        if "--" in args:
            at = args.index("--")
            own, tail = args[:at], args[at + 1 :]
        ctx.obj = tuple(tail)
        return super().parse_args(ctx, own)


_PASSING = {"allow_extra_args": True, "ignore_unknown_options": True}
Words = Annotated[
    list[str],
    typer.Argument(metavar="WORKLOAD [OPTIONS OF stash profile]", help="As for `stash profile`."),
]
Nodes = Annotated[int, typer.Option("--nnodes", help="Nodes.")]
Submit = Annotated[bool, typer.Option("--submit", help="Submit it instead of printing it.")]
Wait = Annotated[
    bool, typer.Option("--wait", help="With --submit: wait, and bring the profile back.")
]
Out = Annotated[Path, typer.Option(help="Folder for the profile.")]
Setup = Annotated[
    list[str] | None, typer.Option(help="A line of shell to run before, on every node.")
]
Gpus = Annotated[int | None, typer.Option(help="GPUs of each node.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
STORE = Path("stash-profiles")


@app.command("slurm", cls=_Passing, context_settings=_PASSING)
def slurm(
    context: typer.Context,
    words: Words,
    nnodes: Nodes = 1,
    partition: Annotated[str | None, typer.Option(help="As for sbatch.")] = None,
    account: Annotated[str | None, typer.Option(help="As for sbatch.")] = None,
    time: Annotated[str | None, typer.Option(help="As for sbatch.")] = None,
    gpus_per_node: Gpus = None,
    cpus_per_node: Annotated[
        int | None, typer.Option(min=1, help="Cores of each node; by default the whole node.")
    ] = None,
    directive: Annotated[
        list[str] | None, typer.Option(help="A further option of sbatch, such as qos=high.")
    ] = None,
    setup: Setup = None,
    python: Annotated[
        str | None, typer.Option(help="Python with Stash on the nodes; by default this one.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the profile, which all nodes must share.")
    ] = STORE,
    submit: Submit = False,
    wait: Wait = False,
    as_json: Json = False,
) -> int:
    """An sbatch script."""
    from stash.launch import slurm as platform

    job = _job(context, words, nnodes)
    options = platform.SlurmOptions(
        out=out,
        partition=partition,
        account=account,
        time=time,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        directives=tuple(directive or ()),
        setup=tuple(setup or ()),
        python=python or sys.executable,
    )
    text = platform.script(job, options)
    if not submit:
        return _print_text("slurm", text, as_json)
    number, code = platform.submit(text, options, wait=wait)
    if not wait:
        log = platform.log_path(options, number)
        return _print_submitted("slurm", f"job {number}", f"its log will be {log}", as_json)
    return _print_profile(platform.profile_of(options, number), None, as_json, 1 if code else 0)


@app.command("sky", cls=_Passing, context_settings=_PASSING)
def sky(
    context: typer.Context,
    words: Words,
    nnodes: Nodes = 1,
    infra: Annotated[
        str | None, typer.Option(help="Where to rent, such as aws or aws/us-east-1.")
    ] = None,
    instance: Annotated[str | None, typer.Option(help="Machine type.")] = None,
    accelerators: Annotated[str | None, typer.Option(help="Such as V100:8.")] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Machines that may be taken away.")] = False,
    workdir: Annotated[
        Path | None, typer.Option(help="Folder to take along: your script, or Stash itself.")
    ] = None,
    setup: Setup = None,
    out: Out = STORE,
    submit: Submit = False,
    wait: Wait = False,
    as_json: Json = False,
) -> int:
    """A SkyPilot task."""
    from stash.launch import sky as platform
    from stash.launch.carry import unpack

    job = _job(context, [*words, *_known_machine(words, instance, spot=spot)], nnodes)
    options = platform.SkyOptions(
        infra=infra,
        instance=instance,
        accelerators=accelerators,
        spot=spot,
        workdir=workdir,
        setup=tuple(setup or ()),
    )
    text = platform.task(job, options)
    if not submit:
        return _print_text("sky", text, as_json)
    log = platform.submit(text, job, wait=wait)
    if not wait:
        later = f"`sky logs {job.name} | stash launch fetch -` brings the profile, `sky down` ends"
        return _print_submitted("sky", f"cluster {job.name}", later, as_json)
    return _print_profile(unpack(log), out, as_json)


@app.command("kubernetes", cls=_Passing, context_settings=_PASSING)
def kubernetes(
    context: typer.Context,
    words: Words,
    nnodes: Nodes = 1,
    image: Annotated[
        str | None, typer.Option(help="Container image with Stash; by default the runtime's.")
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="As for kubectl.")] = None,
    runtime: Annotated[
        str, typer.Option(help="Kubeflow Trainer's runtime to run in.")
    ] = "torch-distributed",
    gpus_per_node: Gpus = None,
    cpus_per_node: Annotated[str | None, typer.Option(help="Such as 8 or 500m.")] = None,
    memory_per_node: Annotated[str | None, typer.Option(help="Such as 32Gi.")] = None,
    setup: Setup = None,
    out: Out = STORE,
    submit: Submit = False,
    wait: Wait = False,
    as_json: Json = False,
) -> int:
    """A TrainJob of Kubeflow Trainer."""
    from stash.launch import kubernetes as platform
    from stash.launch.carry import unpack

    job = _job(context, words, nnodes)
    options = platform.KubernetesOptions(
        image=image,
        namespace=namespace,
        runtime=runtime,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        memory_per_node=memory_per_node,
        setup=tuple(setup or ()),
    )
    text = platform.manifest(job, options)
    if not submit:
        return _print_text("kubernetes", text, as_json)
    platform.submit(text)
    if not wait:
        later = f"`{platform.how_to_fetch(job, options)}` brings the profile"
        what = f"TrainJob {platform.name_of(job, options)}"
        return _print_submitted("kubernetes", what, later, as_json)
    return _print_profile(unpack(platform.wait(job, options)), out, as_json)


@app.command("fetch")
def fetch(
    log: Annotated[Path, typer.Argument(help="The job's log, or - for standard input.")],
    out: Out = STORE,
    as_json: Json = False,
) -> int:
    """Take a profile out of a job's log."""
    from stash.errors import UsageError
    from stash.launch.carry import unpack

    try:
        text = sys.stdin.read() if str(log) == "-" else log.read_text(errors="replace")
    except OSError as error:
        raise UsageError(f"Cannot read {log}: {error.strerror or error}.") from None
    return _print_profile(unpack(text), out, as_json)


def _known_machine(words: Sequence[str], instance: str | None, *, spot: bool) -> list[str]:
    """Words that tell the profile on which machine of the catalog it is, and at which price."""
    from stash.hardware import catalog

    found = [one for one in catalog.instances() if one.name == instance]
    given = {word.partition("=")[0] for word in words}
    if not found or "--instance" in given:
        return []
    told = ["--instance", found[0].name]
    if not spot or "--price-usd-per-hour" in given:
        return told
    price = found[0].spot_usd_per_hour
    return [] if price is None else [*told, "--price-usd-per-hour", str(price)]


def _job(context: typer.Context, words: Sequence[str], nodes: int) -> Job:
    """What is to run; words that `stash profile` would refuse are refused here already."""
    from stash.cli.profile import profile
    from stash.errors import UsageError
    from stash.launch.job import Job

    decided = [one for one in DECIDED if any(word.partition("=")[0] == one for word in words)]
    if decided:
        raise UsageError(f"{' and '.join(decided)}: a job decides that on each node by itself.")
    if nodes < 1:
        raise UsageError(f"--nnodes must be 1 or more, not {nodes}.")
    script_arguments = tuple(context.obj or ())
    parser = typer.Typer(add_completion=False)
    parser.command()(profile)
    command = typer.main.get_command(parser)
    tail = ["--", *script_arguments] if script_arguments else []
    parsed = command.make_context("stash profile", [*words, *tail]).params
    if parsed["sweep"] is not None:
        raise UsageError("--sweep: a job is one profile; launch one for each worker count.")
    return Job(
        workload=str(parsed["workload"]),
        options=tuple(words),
        script_arguments=script_arguments,
        nodes=nodes,
        workers_per_node=parsed["nproc_per_node"],
    )


def _print_text(platform: str, text: str, as_json: bool) -> int:
    from stash.cli.output import print_json

    if as_json:
        print_json({"platform": platform, "job": text})
    else:
        print(text, end="")
    return 0


def _print_submitted(platform: str, what: str, later: str, as_json: bool) -> int:
    from stash.cli.output import print_json

    if as_json:
        print_json({"platform": platform, "submitted": what, "next": later})
    else:
        print(f"Submitted: {what}; {later}.")
    return 0


def _print_profile(found: Profile | Path, out: Path | None, as_json: bool, code: int = 0) -> int:
    """Keep what came back, and show it as if it had been measured here."""
    from stash.cli.output import print_document, report_console
    from stash.launch.api import INTERRUPTED
    from stash.report.terminal import print_profile
    from stash.results import store
    from stash.results.profile import Profile

    if isinstance(found, Path):
        profile, path = Profile.load(found), found
    else:
        profile, path = found, store.save(found, out or STORE)
    if as_json:
        print_document(profile)
    else:
        console = report_console()
        print_profile(profile, console)
        console.print(f"Profile written to {path}", soft_wrap=True)
    codes = {"failed": 1, "interrupted": INTERRUPTED}
    return codes.get(profile.run.stopped_because, code)
