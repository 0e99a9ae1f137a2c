"""The table of the contract: everything that could make a trial's numbers wrong, a row each."""

import rows_of_keras
import rows_of_users
from contract_row import ONE, Row
from exactness_cases import CASES

OF_USERS = {
    "weights made at the first call": "LazyModel",
    "own train_step, even": "OwnStep",
    "own train_step, uneven, clipped": "OwnStep",
    "own train_step, fewer rows over than replicas": "OwnStep",
    "train_step of the workload": "train_step",
    "train_step of the workload, loss by hand": "train_step",
}
UPDATES = {
    name: Row(
        case.workload,
        by_fit=case.keras != float("inf"),
        graph=OF_USERS.get(name, ONE),
    )
    for name, case in CASES.items()
}
TABLE = UPDATES | rows_of_keras.ROWS | rows_of_users.ROWS
