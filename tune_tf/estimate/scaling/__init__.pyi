from .advice import Advice as Advice
from .benchmark_rounds import Effort as Effort
from .candidates import Measurement as Measurement
from .candidates import ScalingCandidate as ScalingCandidate
from .scale import Scaling as Scaling
from .scale import scale_workload as scale_workload
from .scaling_report import ScalingFiles as ScalingFiles
from .scaling_report import write_scaling as write_scaling

__all__ = [
    "Advice",
    "Effort",
    "Measurement",
    "Scaling",
    "ScalingCandidate",
    "ScalingFiles",
    "scale_workload",
    "write_scaling",
]
