from .advice import Advice as Advice
from .candidates import Candidate as Candidate
from .keep import Kept as Kept
from .keep import keep as keep
from .measurement import Measurement as Measurement
from .rounds import Effort as Effort
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
