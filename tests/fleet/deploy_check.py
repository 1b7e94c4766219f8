"""What can be said about deploy/ without a cluster: `problems(root, serve_help)` lists everything that is wrong with a copy of it."""
import functools
import json
import pathlib
import re
import shutil
import subprocess

import jsonschema
import kubernetes_validate
import yaml

SCHEMAS = json.loads((pathlib.Path(__file__).parent / "deploy_schemas.json").read_text())
VERSION = "1.32"
FOLDERS = ("base", "haproxy", "gaie", "monitoring", "keda")
PORTS = re.compile(r"--(?:port=|probe-listen=\S*:)(\d+)")
# Names of Prometheus itself, and what our own rules record.
NAME = re.compile(r"\b(?:vllm|skein):[a-z0-9_]+|\bup\b")


def documents(root, folder):
    """The folder as kubectl puts it together, with kubectl where it is new enough; else its own files, one by one."""
    path = root / "kustomize" / folder
    if has_kustomize():
        done = subprocess.run(["kubectl", "kustomize", str(path)], capture_output=True, text=True)
        if done.returncode != 0:
            raise ValueError(f"kubectl kustomize {folder}: {done.stderr.strip()[:300]}")
        return list(yaml.safe_load_all(done.stdout))
    listed = yaml.safe_load((path / "kustomization.yaml").read_text())["resources"]
    return [each for name in listed if name.endswith(".yaml") for each in yaml.safe_load_all((path / name).read_text())]


@functools.cache
def has_kustomize():
    if not shutil.which("kubectl"):
        return False
    told = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True).stdout
    found = re.search(r"Kustomize Version: v(\d+)", told)
    return bool(found) and int(found[1]) >= 4


def check_document(document):
    kind, name = document["kind"], document["metadata"]["name"]
    if kind in SCHEMAS:
        for error in jsonschema.Draft202012Validator(SCHEMAS[kind]).iter_errors(document.get("spec")):
            yield f"{kind} {name}: {error.message[:200]}"
        return
    try:
        kubernetes_validate.validate(document, VERSION, strict=True)
    except Exception as error:  # it has several kinds
        yield f"{kind} {name}: {str(error)[:200]}"


def check_pods(documents, serve_help):
    """What a schema does not know: options that exist, ports that are meant, probes in time, names that are there."""
    for each in documents:
        if each["kind"] != "Deployment":
            continue
        spec = each["spec"]["template"]["spec"]
        labels = each["spec"]["template"]["metadata"]["labels"]
        if not each["spec"]["selector"]["matchLabels"].items() <= labels.items():
            yield f"{each['metadata']['name']}: its selector does not choose its own pods"
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        for container in spec["containers"]:
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                port = next(iter(container.get(probe, {}).get(kind, {}).get("port") for kind in ("httpGet", "tcpSocket")
                                 if kind in container.get(probe, {})), None)
                if port is not None and port not in ports:
                    yield f"{probe}: there is no port {port}"
            for mount in container["volumeMounts"]:
                if mount["name"] not in volumes:
                    yield f"there is no volume {mount['name']}"
            if container["name"] == "skein":
                yield from check_arguments(container, spec, ports, serve_help)


def check_arguments(container, spec, ports, serve_help):
    words = container["args"][1:]
    for word in words:
        option = word.split("=")[0]
        if not re.search(rf"(?m)^\s+{option}\b", serve_help):
            yield f"skein serve has no {option}"
    told = dict(word.lstrip("-").split("=", 1) for word in words)
    if ports.get("http") != int(told["port"]) or ports.get("probes") != int(told["probe-listen"].rsplit(":", 1)[1]):
        yield "the ports of the container are not those of the command"
    if spec["terminationGracePeriodSeconds"] <= float(told["drain-notice"]) + float(told["drain-timeout"]) + 2:
        yield "a pod is killed before its drain has ended"
    if container["livenessProbe"]["httpGet"]["path"] != "/livez" or container["readinessProbe"]["httpGet"]["path"] != "/health":
        yield "liveness is /livez and readiness /health"


def check_services(documents):
    pods = {}
    for each in documents:
        if each["kind"] == "Deployment":
            template = each["spec"]["template"]
            names = {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}
            pods[tuple(sorted(template["metadata"]["labels"].items()))] = names
    for each in documents:
        if each["kind"] != "Service":
            continue
        chosen = [names for labels, names in pods.items() if each["spec"]["selector"].items() <= dict(labels).items()]
        if not chosen:
            yield f"service {each['metadata']['name']} chooses no pod"
        for port in each["spec"]["ports"]:
            if not any(port["targetPort"] in names for names in chosen):
                yield f"service {each['metadata']['name']}: no pod has the port {port['targetPort']}"


def check_haproxy(root, shipped):
    """The cluster's configuration is the shipped one but for its servers, and HAProxy takes it."""
    def rest(text):
        text = text[text.index("global\n"):]
        text = re.sub(r"(?ms)^resolvers .*?\n\n", "", text)
        return [line for line in text.splitlines() if not re.match(r"\s*(server|server-template|use-server|option httpchk|http-check)\b", line)]

    path = root / "kustomize/haproxy/haproxy.cfg"
    if rest(path.read_text()) != rest(shipped.read_text()):
        yield "haproxy.cfg is not the shipped one"
    haproxy = shutil.which("haproxy") or "/usr/sbin/haproxy"
    if pathlib.Path(haproxy).exists():
        env = {"FLEET_BIND": "127.0.0.1:1", "FLEET_NODES": "skein-nodes:8080", "PATH": "/usr/bin:/bin"}
        done = subprocess.run([haproxy, "-c", "-f", str(path)], env=env, capture_output=True, text=True)
        if done.returncode != 0:
            yield f"haproxy.cfg: {done.stdout}{done.stderr}"[:300]


def rules_of(root):
    return yaml.safe_load((root / "prometheus/rules.yml").read_text())


def panels(root):
    return json.loads((root / "grafana/skein.json").read_text())["panels"]


def expressions(root):
    """[(where, expression)] of rules, dashboard and scaler."""
    found = [(rule.get("alert") or rule["record"], rule["expr"]) for group in rules_of(root)["groups"] for rule in group["rules"]]
    found += [(panel["title"], target["expr"]) for panel in panels(root) for target in panel["targets"]]
    scaler = yaml.safe_load((root / "kustomize/keda/scaledobject.yaml").read_text())
    return found + [("ScaledObject", trigger["metadata"]["query"]) for trigger in scaler["spec"]["triggers"]]


def check_rules(root):
    for tool in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(["promtool", *tool], cwd=root / "prometheus", capture_output=True, text=True)
        if done.returncode != 0:
            yield f"promtool {tool[0]}: {(done.stdout + done.stderr)[-300:]}"
    copied = yaml.safe_load((root / "kustomize/monitoring/rules.yaml").read_text())["spec"]
    if copied != rules_of(root):
        yield "the operator's rules are not those of rules.yml"


def check_names(root, known):
    """Every metric that is asked for is one that a server has. `known`: their names."""
    recorded = {rule["record"] for group in rules_of(root)["groups"] for rule in group["rules"] if "record" in rule}
    for where, expression in expressions(root):
        plain = re.sub(r'"[^"]*"', "", expression)
        for name in NAME.findall(plain):
            if re.sub(r"_(bucket|sum|count)$", "", name) not in known | recorded | {"up"} and name not in known:
                yield f"{where}: no server has the metric {name}"


def check_dashboard(root):
    ids, places = set(), set()
    for panel in panels(root):
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        if panel["id"] in ids or cells & places or place["x"] + place["w"] > 24:
            yield f"panel {panel['title']}: its id or its place is another's"
        ids.add(panel["id"])
        places |= cells
        if not panel["targets"] or len({target["refId"] for target in panel["targets"]}) != len(panel["targets"]):
            yield f"panel {panel['title']}: its questions have no names of their own"


def problems(root, shipped, serve_help, known, changed=""):
    """Of all of it, or of what a change of the file `changed`, below the root, can have broken."""
    def concerns(*words):
        return not changed or any(word in changed for word in words)

    found = []
    try:
        for folder in FOLDERS:
            if not concerns(f"kustomize/{folder}/"):
                continue
            every = documents(root, folder)
            for each in every:
                found += check_document(each)
            if has_kustomize() or folder == "base":
                found += check_pods(every, serve_help)
                found += check_services(every)
        if concerns("haproxy"):
            found += check_haproxy(root, shipped)
        if concerns("prometheus/", "monitoring/"):
            found += check_rules(root)
        if concerns("prometheus/", "grafana/", "keda/"):
            found += check_names(root, known)
        if concerns("grafana/"):
            found += check_dashboard(root)
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError, StopIteration) as error:
        found.append(f"{type(error).__name__}: {error}")
    return found
