#!/bin/sh
# Start an MLflow tracking server for this machine only, and print its address.
#
#   scripts/mlflow_server.sh [FOLDER [PORT]]
#
# FOLDER (default ./mlflow-server) gets the SQLite file, the artifacts and nothing else; without a
# PORT a free one is taken. For a store outside of FOLDER set BACKEND_STORE_URI, for example
# postgresql+psycopg://user@host/mlflow. Ctrl-C ends it. In a sweep file:
#
#   mlflow: {tracking_uri: "http://127.0.0.1:PORT"}
set -eu

folder=${1:-mlflow-server}
python=${PYTHON:-python3}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
port=${2:-$("$python" -c '
import socket
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    print(free.getsockname()[1])
')}

echo "http://127.0.0.1:$port"
exec "$python" -m mlflow server \
    --host 127.0.0.1 \
    --port "$port" \
    --workers "${WORKERS:-1}" \
    --backend-store-uri "${BACKEND_STORE_URI:-sqlite:///$folder/mlflow.db}" \
    --artifacts-destination "$folder/artifacts"
