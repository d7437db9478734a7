"""Airflow over its REST API: DAG runs, approvals, pools and connections. Airflow itself is never imported.

client        one Airflow: the token, what went wrong as a sentence
runs          the runs of one DAG: triggered, looked at, answered, ended
places        pools and connections, made or set right
"""

from tipbench.airflow.client import Client
from tipbench.airflow.places import Connection, Pool, set_connection, set_pool
from tipbench.airflow.runs import DagRun, DagRuns, TaskRun

__all__ = ["Client", "Connection", "DagRun", "DagRuns", "Pool", "TaskRun", "set_connection", "set_pool"]
