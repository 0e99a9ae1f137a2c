from .forecast_sweep import forecast_sweep as forecast_sweep

__all__ = ["forecast_sweep"]
