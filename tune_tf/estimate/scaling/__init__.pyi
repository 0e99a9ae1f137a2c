from .advice import Advice as Advice
from .benchmark_rounds import Effort as Effort
from .candidates import Measurement as Measurement
from .candidates import ScalingCandidate as ScalingCandidate
from .files import ScalingFiles as ScalingFiles
from .files import write_scaling as write_scaling
from .scale import Scaling as Scaling
from .scale import scale_workload as scale_workload

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
