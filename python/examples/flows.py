"""Counts packets and octets of each flow, on packets that wait or on copies; `segue service list -o json` shows them."""

from segue_service import Mode, Service, Verdict, run


class Flows(Service):
    """Counts packets and octets of each flow."""

    CONFIGURATION = {"copies": False, "most": 4096}

    def __init__(self, configuration, worker):
        self.flows = {}

    @staticmethod
    def mode(configuration):
        return Mode.ASYNCHRONOUS if configuration["copies"] else Mode.SYNCHRONOUS

    @staticmethod
    def check(configuration, report):
        if not 1 <= configuration["most"] <= 1_000_000:
            report.error("most", f"{configuration['most']} flows cannot be counted", "write a number from 1 to 1000000")

    def packet(self, packet, context):
        flow = packet.five_tuple
        count = self.flows.get(flow)
        if count is None:
            if len(self.flows) >= self.configuration["most"]:
                return Verdict.ONWARD
            count = self.flows[flow] = [0, 0]
        count[0] += 1
        count[1] += packet.wire_length
        return Verdict.ONWARD

    def report(self):
        most = sorted(self.flows.items(), key=lambda item: -item[1][1])[:20]
        return {"flows": [{"flow": repr(flow), "packets": packets, "octets": octets} for flow, (packets, octets) in most]}


if __name__ == "__main__":
    run(Flows)
