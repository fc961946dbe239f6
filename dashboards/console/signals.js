// How signals are named here: short words for the common ones, the catalogue's path for the rest.

import { get } from "./client.js";

const LABELS = {
  "Vehicle.Speed": "Speed",
  "Vehicle.TraveledDistance": "Odometer",
  "Vehicle.IsMoving": "Moving",
  "Vehicle.CurrentLocation.Latitude": "Latitude",
  "Vehicle.CurrentLocation.Longitude": "Longitude",
  "Vehicle.CurrentLocation.Heading": "Heading",
  "Vehicle.CurrentLocation.Altitude": "Altitude",
  "Vehicle.Acceleration.Longitudinal": "Acceleration, longitudinal",
  "Vehicle.Acceleration.Lateral": "Acceleration, lateral",
  "Vehicle.Acceleration.Vertical": "Acceleration, vertical",
  "Vehicle.AngularVelocity.Yaw": "Yaw rate",
  "Vehicle.Powertrain.CombustionEngine.Speed": "Engine speed",
  "Vehicle.Powertrain.CombustionEngine.EngineCoolant.Temperature": "Coolant",
  "Vehicle.Powertrain.CombustionEngine.EngineOil.Temperature": "Engine oil",
  "Vehicle.Powertrain.CombustionEngine.MAP": "Manifold pressure",
  "Vehicle.Powertrain.CombustionEngine.MAF": "Air mass flow",
  "Vehicle.Powertrain.CombustionEngine.TPS": "Throttle",
  "Vehicle.Powertrain.CombustionEngine.IsRunning": "Engine running",
  "Vehicle.Powertrain.CombustionEngine.Torque": "Engine torque",
  "Vehicle.Powertrain.Transmission.CurrentGear": "Gear",
  "Vehicle.Powertrain.FuelSystem.RelativeLevel": "Fuel",
  "Vehicle.Powertrain.FuelSystem.InstantConsumption": "Consumption",
  "Vehicle.Chassis.Accelerator.PedalPosition": "Accelerator pedal",
  "Vehicle.Chassis.Brake.PedalPosition": "Brake pedal",
  "Vehicle.Chassis.SteeringWheel.Angle": "Steering wheel",
  "Vehicle.LowVoltageBattery.CurrentVoltage": "Battery",
  "Vehicle.Exterior.AirTemperature": "Outside air",
  "Vehicle.Diagnostics.DTCCount": "Fault codes",
  "Vehicle.ADAS.ABS.IsEngaged": "ABS engaged",
  "Vehicle.ADAS.ESC.IsEngaged": "ESC engaged",
  "Fleetstream.Engine.IntakeAirTemperature": "Intake air",
  "Fleetstream.Engine.AcceleratorPedalPositionE": "Accelerator pedal E",
  "WindTurbine.WTUR.TurSt": "Turbine state",
  "WindTurbine.WTUR.W": "Power",
  "WindTurbine.WTUR.SupWh": "Energy supplied",
  "WindTurbine.WROT.RotSpd": "Rotor speed",
  "WindTurbine.WROT.BlPthAngVal": "Blade pitch",
  "WindTurbine.WTRM.GbxOilTmp": "Gearbox oil",
  "WindTurbine.WTRM.ShftBrgTmp": "Shaft bearing",
  "WindTurbine.WTRM.GbxVbr": "Gearbox vibration",
  "WindTurbine.WGEN.RotSpd": "Generator speed",
  "WindTurbine.WGEN.SttTmp": "Stator",
  "WindTurbine.WGEN.BrgDETmp": "Generator bearing",
  "WindTurbine.WGEN.Vbr": "Generator vibration",
  "WindTurbine.WMET.HorWdSpd": "Wind",
  "WindTurbine.WMET.HorWdDir": "Wind direction",
  "WindTurbine.WMET.EnvTmp": "Outside air",
  "WindTurbine.WNAC.Dir": "Nacelle direction",
  "WindTurbine.WNAC.IntnTmp": "Nacelle air",
  "WindTurbine.WCNV.GriHz": "Grid frequency",
  "WindTurbine.WYAW.CabTwist": "Cable twist",
  "Pump.Pressure.Inlet": "Inlet pressure",
  "Pump.Pressure.Outlet": "Outlet pressure",
  "Pump.Motor.Current": "Motor current",
  "Pump.Bearing.Temperature": "Bearing",
};

const VEHICLE = [
  "Vehicle.Speed",
  "Vehicle.Powertrain.CombustionEngine.Speed",
  "Vehicle.Powertrain.CombustionEngine.EngineCoolant.Temperature",
  "Vehicle.Powertrain.FuelSystem.RelativeLevel",
];

// What the fleet list shows of each kind of asset; together at most eight a question.
export const HEADLINES = {
  car: VEHICLE,
  truck: VEHICLE,
  turbine: ["WindTurbine.WTUR.W", "WindTurbine.WMET.HorWdSpd", "WindTurbine.WROT.RotSpd", "WindTurbine.WTRM.GbxOilTmp"],
  pump: ["Pump.Flow", "Pump.Pressure.Outlet", "Pump.Motor.Current", "Pump.Bearing.Temperature"],
  process: ["Process.CpuSeconds", "Process.ResidentBytes"],
  other: [],
};

export const KIND_NAMES = {
  car: "Cars", truck: "Trucks", turbine: "Wind turbines", pump: "Pumps", process: "Processes", other: "Other assets",
};

let loading = null;

export function catalogue() {
  loading ??= get("/signals").then((body) => new Map(body.items.map((item) => [item.path, item])));
  loading.catch(() => { loading = null; });
  return loading;
}

export function label(path) {
  const words = (part) => part.replace(/([a-z0-9])([A-Z])/g, "$1 $2").toLowerCase();
  if (LABELS[path]) return LABELS[path];
  const short = path.split(".").slice(-2).map(words).join(" ");
  return short.charAt(0).toUpperCase() + short.slice(1);
}
