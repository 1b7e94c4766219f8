#!/usr/bin/env python3
"""deploy/ without a cluster: manifests, rules and dashboard are valid, planted mistakes are found, and every expression returns data.

    tests/fleet/with_postgres.sh tests/fleet/deploy_test.py build/skein

The packages are those of tools/requirements-fleet.txt (tools/python_env.sh fleet); Prometheus and promtool are Debian's.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VENV = ROOT / "build/venv-fleet"
if (VENV / "bin/python").exists() and pathlib.Path(sys.prefix) != VENV:
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), "-B", *sys.argv])
for folder in (HERE, HERE.parent / "server/batch"):
    sys.path.insert(0, str(folder))
try:
    import deploy_check
except ImportError as error:
    print(f"deploy: {error.name} is not there; `tools/python_env.sh fleet` installs it")
    sys.exit(1 if os.environ.get("SKEIN_REQUIRE") == "all" else 77)
from batch_kill_test import free_port, write_tiny_model  # noqa: E402
from fleet_batch_test import Node, schema_of, wait_for  # noqa: E402
from fleet_test import Front, make_key  # noqa: E402

SHIPPED = ROOT / "packaging/haproxy/skein.cfg"
DEVICES = {"skein:device_lost_total"}  # a server on a CPU has none

# (file below deploy/, what is there, what a hand would write by mistake)
MISTAKES = [
    ("kustomize/base/deployment.yaml", "readinessProbe:", "readynessProbe:"),
    ("kustomize/base/deployment.yaml", "periodSeconds: 10", "periodSecond: 10"),
    ("kustomize/base/deployment.yaml", "replicas: 3", 'replicas: "three"'),
    ("kustomize/base/deployment.yaml", "port: probes}\n            periodSeconds: 10", "port: probe}\n            periodSeconds: 10"),
    ("kustomize/base/deployment.yaml", "--drain-timeout=60", "--drain-timeout=120"),
    ("kustomize/base/deployment.yaml", "--probe-listen=", "--probes-listen="),
    ("kustomize/base/deployment.yaml", "containerPort: 9090", "containerPort: 9091"),
    ("kustomize/base/deployment.yaml", "name: models, mountPath", "name: model, mountPath"),
    ("kustomize/base/deployment.yaml", "matchLabels: {app: skein}\n  strategy", "matchLabels: {app: skien}\n  strategy"),
    ("kustomize/base/service.yaml", "targetPort: probes", "targetPort: metrics"),
    ("kustomize/base/service.yaml", "clusterIP: None\n  selector: {app: skein}", "clusterIP: None\n  selector: {app: skein-node}"),
    ("kustomize/base/disruption.yaml", "maxUnavailable", "maxUnavailible"),
    ("kustomize/base/disruption.yaml", "policy/v1", "policy/v1beta1"),
    ("kustomize/gaie/pool.yaml", "targetPorts:\n    - {number: 8080}", "targetPortNumber: 8080"),
    ("kustomize/gaie/pool.yaml", "value: /v1/messages", "value: v1/messages"),
    ("kustomize/keda/scaledobject.yaml", 'threshold: "4"', "threshold: 4"),
    ("kustomize/keda/scaledobject.yaml", "vllm:num_requests_waiting", "vllm:requests_waiting"),
    ("kustomize/monitoring/monitor.yaml", "interval: 15s", "interval: 15"),
    ("kustomize/monitoring/rules.yaml", "skein:engine_up == 0", "skein:engine_up == 1"),
    ("kustomize/haproxy/haproxy.cfg", "hash-balance-factor 150", "hash-balance-factor 15"),
    ("kustomize/haproxy/haproxy.yaml", "name: config, mountPath", "name: conf, mountPath"),
    ("prometheus/rules.yml", "rate(vllm:num_preemptions_total[5m])", "rate(vllm:num_preemptions_total)"),
    ("prometheus/rules.yml", "skein:store_away_seconds", "skein:store_gone_seconds"),
    ("grafana/skein.json", "skein:step_time_seconds_bucket", "skein:step_seconds_bucket"),
    ("grafana/skein.json", '"x": 8', '"x": 0'),
]


def say(text):
    print(f"deploy: {text}", flush=True)


class Scraper:
    """A Prometheus over the nodes."""

    def __init__(self, folder, nodes):
        self.port = free_port()
        targets = ", ".join(f"'127.0.0.1:{node.probe_port}'" for node in nodes)
        (folder / "prometheus.yml").write_text(f"scrape_configs:\n  - job_name: skein\n    scrape_interval: 1s\n    static_configs:\n"
                                               f"      - targets: [{targets}]\n")
        log = open(folder / "prometheus.log", "wb")
        self.process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
                                         f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log)
        wait_for("Prometheus", self.is_ready, 30)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return answer.read()

    def is_ready(self):
        try:
            return bool(self.get("/-/ready"))
        except OSError:
            return False

    def ask(self, expression):
        return json.loads(self.get(f"/api/v1/query?query={urllib.parse.quote(expression)}"))["data"]["result"]

    def end(self):
        self.process.kill()
        self.process.wait()


def as_grafana(expression):
    """With its variables filled in."""
    return expression.replace("$__rate_interval", "30s").replace("$instance", ".*")


def check_expressions(nodes, folder, key):
    """Those of the dashboard return data; rules and the scaler's are asked as they are, for what they compare."""
    scraper = Scraper(folder, nodes)
    try:
        running = True

        def load():
            while running:
                for node in nodes:
                    Front(node.port, key).chat([{"role": "user", "content": "Something to count"}])
                    Front(node.port, "sk-wrong").ask("GET", "/v1/models")
                time.sleep(0.05)

        thread = threading.Thread(target=load)
        thread.start()
        asked = [(panel["title"], as_grafana(target["expr"])) for panel in deploy_check.panels(ROOT / "deploy") for target in panel["targets"]]
        # An alert is silent while all is well; what it looks at is there.
        asked += [(where, re.split(r" (?:[<>]|[!=]=) (?!1\))", expression)[0])
                  for where, expression in deploy_check.expressions(ROOT / "deploy") if "$" not in expression and not any(name in expression for name in DEVICES)]
        try:
            for where, expression in asked:
                wait_for(f"data of {where}: {expression}", lambda: scraper.ask(expression), 20)
            firing = scraper.ask('ALERTS{alertstate="firing"}')
            assert not firing, firing
        finally:
            running = False
            thread.join()
        return len(asked)
    finally:
        scraper.end()


def start_nodes(binary, folder):
    store = schema_of(os.environ["SKEIN_TEST_STORE"], "deploy")
    key = make_key(binary, store, "tests")
    model = write_tiny_model(folder / "tiny")
    nodes = [Node(binary, model, folder / name, name, store, 5) for name in ("n1", "n2", "n3")]
    for node in nodes:
        node.probe_port = free_port()
        node.command += ["--probe-listen", f"127.0.0.1:{node.probe_port}"]
        node.start()
    return nodes, key


def metric_names(node):
    page = Front(node.probe_port).ask("GET", "/metrics")[2].decode()
    return set(re.findall(r"(?m)^# TYPE (\S+) ", page))


def main():
    binary = sys.argv[1]
    for tool in ("promtool", "prometheus"):
        if not shutil.which(tool):
            print(f"deploy: there is no {tool}; tools/setup.sh test installs it")
            return 1 if os.environ.get("SKEIN_REQUIRE") == "all" else 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="skein-deploy-"))
    nodes = []
    try:
        nodes, key = start_nodes(binary, folder)
        Front(nodes[0].port, key).chat([{"role": "user", "content": "So that there is something to see"}])
        known = metric_names(nodes[0]) | DEVICES
        serve_help = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        wrong = deploy_check.problems(ROOT / "deploy", SHIPPED, serve_help, known)
        assert not wrong, "\n".join(wrong)
        asked = check_expressions(nodes, folder, key)
        missed = []
        for number, (file, old, new) in enumerate(MISTAKES):
            copy = folder / f"mistake{number}"
            shutil.copytree(ROOT / "deploy", copy)
            text = (copy / file).read_text()
            assert old in text, f"mistake {number}: {file} has no {old!r}"
            (copy / file).write_text(text.replace(old, new, 1))
            if not deploy_check.problems(copy, SHIPPED, serve_help, known, file):
                missed.append((file, new))
            shutil.rmtree(copy)
        assert not missed, f"planted mistakes that nobody found: {missed}"
    finally:
        for node in nodes:
            node.end()
        shutil.rmtree(folder, ignore_errors=True)
    how = "put together by kubectl kustomize" if deploy_check.has_kustomize() else "file by file (no kubectl that knows kustomize)"
    say(f"{len(deploy_check.FOLDERS)} folders of manifests valid, {how}; {len(MISTAKES)} of {len(MISTAKES)} planted mistakes found; "
        f"{asked} expressions of dashboard, rules and scaler return data from a Prometheus over 3 nodes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
