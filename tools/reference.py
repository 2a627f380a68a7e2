"""Write docs/reference/configuration.md and commands.md from the settings' docstrings and the command line's parser."""

import argparse
import dataclasses
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from secondsight.access.oidc import OidcConfig, OidcRule
from secondsight.agent.client.enrol import EnrolSettings
from secondsight.agent.config import AgentConfig
from secondsight.agent.dcgm.config import DcgmSettings
from secondsight.agent.fabric.config import FabricConfig
from secondsight.agent.host.processes import ProcessesConfig
from secondsight.agent.host.storage import StorageProbeConfig
from secondsight.agent.jobs.settings import KubernetesConfig, LifecycleConfig, SacctConfig, SlurmConfig
from secondsight.agent.kmsg.config import KernelLogConfig
from secondsight.agent.nvml.settings import NvmlSettings
from secondsight.agent.plan.settings import SamplingSettings
from secondsight.agent.scrape.target import Target
from secondsight.agent.simulate.config import FleetConfig, SimulatedClusterConfig
from secondsight.agent.simulate.reader import SimulatedGpus
from secondsight.agent.smi.config import SmiSettings
from secondsight.agent.training.config import LogFiles, LogsConfig, TrainingConfig
from secondsight.api.config import ApiConfig
from secondsight.ask.models import ModelConfig
from secondsight.canary.config import CanaryConfig
from secondsight.cli import parser
from secondsight.gateway.config import GatewayConfig
from secondsight.guard.budget import Budget
from secondsight.lake.cold_config import ColdConfig
from secondsight.lake.config import CatalogConfig, LakeConfig
from secondsight.live.config import LiveConfig
from secondsight.log.kafka.config import KafkaConfig
from secondsight.process.config import ServeConfig
from secondsight.retire.config import RetentionConfig
from secondsight.rollup.config import RollupConfig
from secondsight.store.clickhouse.config import ClickHouseConfig

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
TABLES: tuple[tuple[str, type[Any], str], ...] = (
    ("[agent]", AgentConfig, "What collects from one host."),
    ("[agent.processes]", ProcessesConfig, "Programs of the host by name; off without this table."),
    ("[agent.storage_probe]", StorageProbeConfig, "Probes of file systems; off without this table."),
    ("[agent.fabric]", FabricConfig, "InfiniBand and RoCE ports."),
    ("[agent.kernel_log]", KernelLogConfig, "The kernel log: Xid, SXid, GPUs off the bus, and what rules know."),
    ("[[agent.scrape]]", Target, "One address that the agent scrapes; may stand several times."),
    ("[agent.nvml]", NvmlSettings, "NVIDIA GPUs through the driver's library."),
    ("[agent.dcgm]", DcgmSettings, "A DCGM host engine, read through the Python bindings that DCGM ships."),
    ("[agent.smi]", SmiSettings, "A running nvidia-smi, on hosts that have nothing better."),
    ("[agent.simulate]", SimulatedGpus, "GPUs that the agent makes up, for trying things where there are none."),
    ("[agent.sampling]", SamplingSettings, "How the agent follows the plan that the gateway has for it."),
    ("[agent.enrol]", EnrolSettings, "How the agent gets a token of its own, in place of `token_file`."),
    ("[agent.kubernetes]", KubernetesConfig, "Who has which GPU, from the kubelet of this node."),
    ("[agent.slurm]", SlurmConfig, "Who has which GPU, from what Slurm leaves on this node."),
    ("[agent.sacct]", SacctConfig, "Jobs of a Slurm cluster, from its accounting."),
    ("[agent.lifecycle]", LifecycleConfig, "State changes of instances, as their cloud announces them."),
    ("[agent.training]", TrainingConfig, "Where training jobs of this host tell their steps; the table may be empty."),
    ("[agent.logs]", LogsConfig, "Logs of training jobs and inference engines that the agent follows."),
    ("[[agent.logs.files]]", LogFiles, "Some of these logs; may stand several times."),
    ("[gateway]", GatewayConfig, "What takes samples in."),
    ("[gateway.kafka]", KafkaConfig, "Brokers that hold the log; `[processor.kafka]` has the same keys."),
    ("[processor]", ServeConfig, "What turns the log into tables; it owns the embedded store."),
    (
        "[processor.clickhouse]",
        ClickHouseConfig,
        "A server that keeps the tables; `[api.clickhouse]` and `[rollup.clickhouse]` have the same keys.",
    ),
    ("[rollup]", RollupConfig, "What makes rollups of 5 min, 1 h and 1 d."),
    ("[lake]", LakeConfig, "What copies the tables into a lake of open files."),
    ("[lake.catalog]", CatalogConfig, "Where the lake is; files in the data folder unless it says otherwise."),
    ("[retention]", RetentionConfig, "What drops old rows of the hot store, once the lake has them."),
    ("[canary]", CanaryConfig, "What sends known series and reads them back from every tier."),
    ("[api]", ApiConfig, "What serves pages and the read API."),
    ("[api.sql]", Budget, "What questions in SQL may cost."),
    ("[api.oidc]", OidcConfig, "Sign-in of people by an OpenID Connect issuer; off without this table."),
    ("[[api.oidc.rules]]", OidcRule, "What a claim gives; may stand several times."),
    ("[api.model]", ModelConfig, "A language model for questions in words; none is needed."),
    ("[api.live]", LiveConfig, "The newest minutes that an api keeps in memory; see the guide `live-window.md`."),
    ("[api.cold]", ColdConfig, "How the api reads from the lake; `[api.cold.catalog]` is as `[lake.catalog]`."),
    ("[simulate]", FleetConfig, "A simulated fleet, run by `secondsight simulate`."),
    ("[[simulate.clusters]]", SimulatedClusterConfig, "One cluster of that fleet."),
)


def configuration() -> str:
    """Return the page of all settings."""
    lines = [
        "# Configuration",
        "",
        "One TOML file, given with `--config`, may hold a table for each part. `SECONDSIGHT_<PART>_<KEY>` in the",
        "environment overrides a key (`SECONDSIGHT_GATEWAY_LISTEN`). Unknown keys and wrong types are errors. Secrets",
        "stand in files or in the environment, never in this file.",
    ]
    for name, settings, text in TABLES:
        lines += ["", f"## `{name}`", "", text, "", "| key | default | meaning |", "| --- | --- | --- |"]
        lines += _rows(settings)
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Return the page of all commands."""
    os.environ["COLUMNS"] = "110"
    lines = ["# Commands", "", "Exit codes: 0 fine, 1 failed, 2 wrong use."]
    for command in _leaves(parser()):
        lines += ["", f"## `{command.prog}`", "", "```", command.format_help().strip(), "```"]
    return "\n".join(lines) + "\n"


def _rows(settings: type[Any]) -> Iterator[str]:
    meanings = _meanings(settings)
    for field in dataclasses.fields(settings):
        yield f"| `{field.name}` | {_default(field)} | {meanings.get(field.name, '')} |"


def _meanings(settings: type[Any]) -> dict[str, str]:
    """Return field -> text of the docstring's section of attributes; one text may stand for several fields."""
    _, _, section = (inspect.getdoc(settings) or "").partition("Attributes:\n")
    meanings: dict[str, str] = {}
    for names, text in re.findall(r"^    ([\w, ]+): (.+(?:\n        .+)*)", section, flags=re.MULTILINE):
        meanings |= dict.fromkeys(names.split(", "), re.sub(r"\s+", " ", text))
    return meanings


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "required"
    value = field.default if field.default is not dataclasses.MISSING else None
    return "" if value in (None, "", ()) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _leaves(command: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    nested = [action for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested or command.get_default("command"):
        yield command
    for action in nested:
        for child in action.choices.values():
            yield from _leaves(child)


if __name__ == "__main__":
    (FOLDER / "configuration.md").write_text(configuration())
    (FOLDER / "commands.md").write_text(commands())
