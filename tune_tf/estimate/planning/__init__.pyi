from .forecast_sweep import forecast_sweep as forecast_sweep
from .schedule_model import Limits as Limits

__all__ = ["Limits", "forecast_sweep"]
