"""No disaggregation, chunked prefills (Sarathi-Serve): as `colocated`, but decodes go on beside chunks of prompts.

An iteration takes up to the engine's ``chunk_tokens`` prompt tokens: the paper's token budget, to be chosen so that a
full iteration keeps the TPOT promise.
"""

from mesh.wire.control import PrefillMode
from router.policies.colocated import Colocated
from router.policies.policy import BaselineParameters, PolicyEntry


class Chunked(Colocated):
    name = "chunked"
    mode = PrefillMode.CHUNKED


ENTRY = PolicyEntry("chunked", lambda parameters, _: Chunked(parameters), BaselineParameters)
