"""The scans themselves. What they find is kept in memory until it is parsed."""
import time


def dns_records(task):
    time.sleep(0.15)
    return [{"type": t, "name": task["target"]} for t in ("A", "AAAA", "MX", "TXT")]


def http_headers(task):
    time.sleep(0.2)
    return [{"header": f"X-Header-{i}", "value": "a" * 40} for i in range(30)]


def ssl_scan(task):
    time.sleep(0.25)
    return [{"cipher": f"TLS_{i}", "strength": 128} for i in range(40)]


def nmap(task):
    hosts = 1024 if "/" in task["target"] else 1
    found = []
    for host in range(hosts):
        found.append(bytearray(task["ports"] * 12))
        time.sleep(0.002 if hosts > 1 else 0.3)
    return [{"host": i, "bytes": len(raw)} for i, raw in enumerate(found)]


RUNNERS = {"dns-records": dns_records, "http-headers": http_headers, "ssl-scan": ssl_scan, "nmap": nmap}
