"""The table of the contract: everything that could make a trial's numbers wrong, a row each."""

import rows_of_keras
import rows_of_users

TABLE = rows_of_keras.ROWS | rows_of_users.ROWS
