"""The real service with other limits for its connections: `limited_service.py LIMITS`, as JSON."""

from __future__ import annotations

import json
import sys

from tipbench.api.connections import Limits
from tipbench.service import main
from tipbench.workflows.service_state import ServiceConfig

if __name__ == "__main__":
    main(ServiceConfig(port=0), exposed=False, only_tips=True, limits=Limits(**json.loads(sys.argv[1])))
