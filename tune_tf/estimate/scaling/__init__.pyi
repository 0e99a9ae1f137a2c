from .advice import Advice as Advice
from .benchmark_rounds import Effort as Effort
from .candidates import Candidate as Candidate
from .files import Kept as Kept
from .files import keep as keep
from .measurement import Measurement as Measurement
from .scale import Scaling as Scaling
from .scale import scale_workload as scale_workload

__all__ = [
    "Advice",
    "Candidate",
    "Effort",
    "Kept",
    "Measurement",
    "Scaling",
    "keep",
    "scale_workload",
]
