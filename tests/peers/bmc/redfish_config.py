#!/usr/bin/env python3
"""redfish_config.py N DIRECTORY PORT [--tls]: the emulator's configuration of N machines that are off.

The login is admin/password; with --tls a certificate of its own is DIRECTORY/cert.pem.
"""
import os
import subprocess
import sys
import uuid

import bcrypt

count, directory, port = int(sys.argv[1]), os.path.abspath(sys.argv[2]), int(sys.argv[3])
os.makedirs(directory + "/state", exist_ok=True)
with open(directory + "/htpasswd", "w") as file:
    # Every request hashes again: the cheapest cost. Apache's prefix is the only one that is read.
    digest = bcrypt.hashpw(b"password", bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")
    file.write(f"admin:{digest}\n")
lines = [
    "SUSHY_EMULATOR_FAKE_DRIVER = True",
    "SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'",
    f"SUSHY_EMULATOR_LISTEN_PORT = {port}",
    f"SUSHY_EMULATOR_STATE_DIR = {directory + '/state'!r}",
    "SUSHY_EMULATOR_FEATURE_SET = 'full'",
    f"SUSHY_EMULATOR_AUTH_FILE = {directory + '/htpasswd'!r}",
    "SUSHY_EMULATOR_FAKE_SYSTEMS = [",
]
if "--tls" in sys.argv:
    key, certificate = directory + "/key.pem", directory + "/cert.pem"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*request, *names, "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
    lines[-1:-1] = [f"SUSHY_EMULATOR_SSL_CERT = {certificate!r}", f"SUSHY_EMULATOR_SSL_KEY = {key!r}"]
for index in range(count):
    name = uuid.UUID(int=index + 1)
    nic = f"{{'mac': '52:54:00:00:00:{index:02x}', 'ip': '10.0.0.{index}'}}"
    lines.append(f" {{'uuid': '{name}', 'name': 'fake-{index}', 'power_state': 'Off', 'external_notifier': False, 'nics': [{nic}]}},")
lines.append("]")
with open(directory + "/sushy.conf", "w") as file:
    file.write("\n".join(lines) + "\n")
