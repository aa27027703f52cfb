"""``mesh simulate`` in the process of a test."""

import argparse

from simulation.command.cli import register

TOPOLOGY = """
[services.large]
model = "somewhere"
ttft_ms = 2000
tpot_ms = 100

[engines.prefill]
role = "prefill"
profile = "a100-llama2-70b-tp4"

[engines.decode]
role = "multiplex"
profile = "a100-llama2-70b-tp4"
"""


LENGTHS = "input_tokens,output_tokens\n200,5\n900,9\n"


def main(*arguments):
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    options = parser.parse_args(["simulate", *arguments])
    return options.run(options)


def simulate(files, *options):
    topology, lengths = files
    return main(topology, "--lengths", lengths, *options)
