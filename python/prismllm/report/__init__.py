"""One HTML file to look at: the timeline by rank, what ranks did with their time, communication, memory."""

from prismllm.report.write import write_report

__all__ = ["write_report"]
