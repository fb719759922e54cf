"""Lets large inner packets go on only so often: `python3 gentle.py run service.yaml`."""

from segue_service import MILLISECONDS, Metric, Reason, Service, Verdict, run


class Gentle(Service):
    """Drops inner packets above a length, unless they come rarely."""

    CONFIGURATION = {"largest": 1500, "pause_ms": 10}
    METRICS = [Metric.counter("refused_octets", "octets of inner packets that were dropped")]
    last = None

    def packet(self, packet, context):
        octets, pause = len(packet.inner), self.configuration["pause_ms"] * MILLISECONDS
        if octets > self.configuration["largest"]:
            if self.last is not None and context.now - self.last < pause:
                context.count("refused_octets", octets)
                return Verdict.drop(Reason.REFUSED)
            self.last = context.now
        return Verdict.ONWARD


if __name__ == "__main__":
    run(Gentle)
