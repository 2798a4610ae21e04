"""Recorded tensors: what ranks put into communications, as `prism capture --data DIR` kept it.

    data = prismllm.data.open("DIR")
    data.collective("0", 17).inputs(3)[0].array      # what rank 3 put in: a read-only NumPy array over the file
    data.collective("0", 17).virtual_part()[0].array  # with --for-ranks: what all others put into a reduction

Groups and numbers are those of the trace; ranks are global ranks. Format: docs/design/prismdata.md.
"""

from prismllm.data.recorded import WHOLE_NUMBERS, Communication, RecordedData, Tensor, digest, open

__all__ = ["WHOLE_NUMBERS", "Communication", "RecordedData", "Tensor", "digest", "open"]
