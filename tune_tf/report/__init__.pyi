from .report import write_report as write_report

__all__ = ["write_report"]
