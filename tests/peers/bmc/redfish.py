#!/usr/bin/env python3
"""redfish.py [--strict] --config FILE: sushy-tools' emulator, whose power changes take effect at once.

sushy-tools 2.2.0 applies a change of its fake driver after 1 to 11 random seconds. --strict adds the members that DMTF's
schemas require and the emulator leaves out.
"""
import json
import sys

import sushy_tools.emulator.resources.systems.fakedriver as fake
from sushy_tools.emulator import main as emulator

strict = "--strict" in sys.argv
if strict:
    sys.argv.remove("--strict")


class AtOnce:
    @staticmethod
    def randint(low, high):
        return 0


fake.random = AtOnce

if strict:

    @emulator.app.after_request
    def fill(response):
        if response.mimetype == "application/json" and response.status_code == 200:
            body = json.loads(response.get_data())
            if "ServiceRoot" in body.get("@odata.type", ""):
                body.setdefault("Links", {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}})
            if "Members" in body:
                body.setdefault("Members@odata.count", len(body["Members"]))
            response.set_data(json.dumps(body))
        return response


sys.exit(emulator.main())
