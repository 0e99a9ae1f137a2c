from .report import report_sweep as report_sweep
from .report import write_report as write_report

__all__ = ["report_sweep", "write_report"]
