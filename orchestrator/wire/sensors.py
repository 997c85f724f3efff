"""What the sensors read, as the status tells it: one value each, none where it is unknown."""

from pydantic import Field

from orchestrator.wire.shapes import Shape


class GpuSensors(Shape):
    """One GPU."""

    index: int = Field(description="as the driver counts it")
    uuid: str = Field(description="as the driver names it")
    name: str = Field(description="the product's")
    total: int | None = Field(description="bytes of memory")
    used: int | None = Field(description="bytes that are not free")
    free: int | None = Field(description="bytes")
    own: int | None = Field(description="bytes of our processes")
    others: int | None = Field(description="bytes of all other processes")
    utilisation: float | None = Field(description="percent of time in which it computed")
    power: float | None = Field(description="watts now")
    power_limit: float | None = Field(description="watts, enforced now")
    power_default: float | None = Field(description="watts, as the board was made")
    temperature: float | None = Field(description="degrees Celsius")
    clock_reasons: tuple[str, ...] | None = Field(description="why its clocks are not at their highest")
    performance_state: int | None = Field(description="0 is the fastest, 15 the slowest")
    unified: bool = Field(description="it uses the host's RAM")


class HostSensors(Shape):
    """The machine as the daemon may use it: a container's limits are respected."""

    ram_total: int | None = Field(description="bytes")
    ram_available: int | None = Field(description="bytes")
    ram_own: int | None = Field(description="bytes of our processes, without the files that they map")
    rss: int | None = Field(description="bytes of our processes in RAM")
    container_limit: int | None = Field(description="bytes; none also where there is no limit")
    swap_total: int | None = Field(description="bytes")
    swap_used: int | None = Field(description="bytes")
    stalled: float | None = Field(description="percent of the last 10 s in which some task waited for memory")
    disk_free: int | None = Field(description="bytes where checkpoints are written")
    on_battery: bool | None = Field(description="not on mains")
    battery: float | None = Field(description="percent")
    network_up: bool | None = Field(description="a network is there")


class SensorsReport(Shape):
    """Every reading."""

    gpus: tuple[GpuSensors, ...] = Field(description="those that answer")
    host: HostSensors = Field(description="the machine")
