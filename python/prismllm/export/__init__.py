"""Traces in the formats of other tools."""

from prismllm.export.chrome import export_chrome

__all__ = ["export_chrome"]
