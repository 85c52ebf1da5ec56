#!/usr/bin/env python3
"""pyghmi_bmc.py N [BASEPORT] [--only 3|17]: N in-memory IPMI BMCs in one process, 127.0.0.1:BASEPORT+i, admin/password.

pyghmi 1.6.19's server speaks cipher suite 3 only; the edits below to its ServerSession (made at import, on the
source text) add suite 17 (RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128), ipmitool 1.8.19's first choice.
"""
import inspect, sys, types
import pyghmi.ipmi.private.serversession as ss

only = int(sys.argv[sys.argv.index('--only') + 1]) if '--only' in sys.argv else 0
src = inspect.getsource(ss)
def sub(a, b, n=None):
    global src
    assert a in src, a
    src = src.replace(a, b)
sub("        self.privlevel = 4\n", """        self.privlevel = 4
        algs = (request[12], request[20], request[28])
        allowed = {(1, 1, 1): (hashlib.sha1, 12, 3), (3, 4, 1): (hashlib.sha256, 16, 17)}
        if algs not in allowed or (ONLY and allowed[algs][2] != ONLY):
            return bytearray([clienttag, 0x11, 0, 0]) + self.clientsessionid   # no cipher suite match
        self.currhashlib, self.currhashlen, _ = allowed[algs]
""")
sub("0, 0, 0, 8, 1, 0, 0, 0,  # auth", "0, 0, 0, 8, algs[0], 0, 0, 0,")
sub("1, 0, 0, 8, 1, 0, 0, 0,  # integrity", "1, 0, 0, 8, algs[1], 0, 0, 0,")
head, tail = src.split("    def _got_rakp1", 1)
src = head + "    def _got_rakp1" + tail.replace("hashlib.sha1", "self.currhashlib")
sub(".digest()[:12]", ".digest()[:self.currhashlen]")
cs = {3: r"\xc0\x03\x01\x41\x81", 17: r"\xc0\x11\x03\x44\x81"}
body = cs[only] if only else cs[3] + cs[17]
sub(r"\x00\x01\xc0\x03\x01\x41\x81", r"\x00\x01" + body)
sub(r"\x00\x00\x00\x00\x00\x0e\x00", r"\x00\x00\x00\x00\x00" + ("\\x0e" if only else "\\x13") + r"\x00")
new = types.ModuleType(ss.__name__); new.__dict__["ONLY"] = only
exec(compile(src, "serversession+17", "exec"), new.__dict__)
sys.modules[ss.__name__] = new
import pyghmi.ipmi.private as priv; priv.serversession = new
from pyghmi.ipmi import bmc
from pyghmi.ipmi.private import session

class B(bmc.Bmc):
    def __init__(s, port):
        super().__init__({'admin': 'password'}, port=port, address='::ffff:127.0.0.1'); s.p, s.dev, s.port = 'off', 'default', port
    def say(s, *a): print(s.port, *a, flush=True)
    def get_boot_device(s): return s.dev
    def set_boot_device(s, d): s.dev = d; s.say('boot', d)
    def get_power_state(s): return s.p
    def power_off(s): s.p = 'off'; s.say('off')
    def power_on(s): s.p = 'on'; s.say('on')
    def power_cycle(s): s.say('cycle')
    def power_reset(s): s.say('reset')
    def power_shutdown(s): s.p = 'off'; s.say('soft')
    def cold_reset(s): s.say('bmc-reset')
    def is_active(s): return s.p == 'on'

if __name__ == '__main__':
    n = int(sys.argv[1]); base = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2].isdigit() else 19500
    bs = [B(base + i) for i in range(n)]
    while True:
        session.Session.wait_for_rsp(timeout=3600)
