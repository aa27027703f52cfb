"""Types of the numbers and names in messages: who receives one knows that it is sane.

The bounds are checked as a message is decoded. No honest process comes near them; NaN keeps none of them.
"""

import sys
from typing import Annotated

from msgspec import Meta

MAX_BODY_BYTES = 64 * 2**20  # of a message without its payload: a long prompt's log-probabilities are the longest
MAX_FRAMES = 4096  # of a message: a payload has one a block
MAX_NAME = 1024  # characters
MAX_METADATA = 2**16  # bytes: how an agent of NIXL is reached; those of one memory have some hundred
MAX_TOKENS = 2**24  # of a request
MAX_DIMENSIONS = 2**16  # of a vector
LARGEST = sys.float_info.max

Count = Annotated[int, Meta(ge=0, le=2**53)]
NumTokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
TokenId = Annotated[int, Meta(ge=0, lt=2**32)]
Tokens = Annotated[list[TokenId], Meta(max_length=MAX_TOKENS)]
Priority = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
Total = Annotated[int, Meta(ge=0)]  # a sum, of squares for one
Difference = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]  # how long something takes, or took
Until = Annotated[float, Meta(ge=-1e12, le=1e12)]  # seconds to a moment that may be past
Amount = Annotated[float, Meta(ge=0, le=1e300)]  # of anything that is measured
Promise = Annotated[float, Meta(ge=0)]  # seconds; infinite: none was given
Slack = Annotated[float, Meta(ge=-1e12)]  # seconds; infinite, where promises are
Finite = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Estimate = Annotated[float, Meta(ge=-LARGEST)]  # infinite: nothing is in time
Freeness = Annotated[float, Meta(le=LARGEST)]  # tokens; -inf: nothing may stay
Name = Annotated[str, Meta(max_length=MAX_NAME)]
Metadata = Annotated[bytes, Meta(max_length=MAX_METADATA)]
Digest = Annotated[bytes, Meta(min_length=16, max_length=16)]
Vector = Annotated[bytes, Meta(min_length=4, max_length=4 * MAX_DIMENSIONS)]  # float32, little-endian
