"""A mixture of experts whose peers route as they did in a capture, in the same folder, with `--data moe_ep.data`."""

from prismllm import inputs

inputs.rule("as recorded").peers(inputs.recorded("moe_ep.data"))
