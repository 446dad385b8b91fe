"""The tags by which model files name classes, and where each class is found today.

The table stands at the root of the package, next to the table of public names, because it names every folder: the
layer that reads and writes files (`everlearn.persistence`) looks tags up here and names no model itself.
"""

from __future__ import annotations

TAGS = {
    # estimators
    "anomaly_detector/1": "everlearn.anomaly.estimator:AnomalyDetector",
    "classifier/1": "everlearn.mixture.classifier:IncrementalGaussianMixtureClassifier",
    "figmn/1": "everlearn.figmn.estimator:FIGMN",
    "figmn_classifier/1": "everlearn.figmn.classifier:FIGMNClassifier",
    "mixture/1": "everlearn.mixture.estimator:IncrementalGaussianMixture",
    "online_ppca/1": "everlearn.ppca.estimator:OnlinePPCA",
    "q_agent/1": "everlearn.agents.q_agent:MixtureQAgent",
    "stream_imputer/1": "everlearn.mixture.imputer:StreamImputer",
    "regressor/1": "everlearn.mixture.regressor:IncrementalGaussianMixtureRegressor",
    "variational_ppca/1": "everlearn.variational.estimator:VariationalPPCA",
    # their states, settings and parameters
    "anomaly_among/1": "everlearn.anomaly.state:Among",
    "anomaly_clock/1": "everlearn.anomaly.state:Clock",
    "anomaly_density/1": "everlearn.anomaly.state:Density",
    "anomaly_far/1": "everlearn.anomaly.state:Far",
    "anomaly_guard/1": "everlearn.anomaly.state:Guard",
    "anomaly_memory/1": "everlearn.anomaly.state:Memory",
    "anomaly_past/1": "everlearn.anomaly.state:Past",
    "anomaly_pending/1": "everlearn.anomaly.state:Pending",
    "anomaly_sample/1": "everlearn.anomaly.state:Sample",
    "anomaly_season/1": "everlearn.anomaly.state:Season",
    "anomaly_state/1": "everlearn.anomaly.state:State",
    "anomaly_units/1": "everlearn.anomaly.state:Units",
    "answers/1": "everlearn.persistence.answers:Answers",
    "answers_of_detector/1": "everlearn.persistence.answers:DetectorAnswers",
    "answers_of_factors/1": "everlearn.persistence.answers:FactorAnswers",
    "answers_of_predictor/1": "everlearn.persistence.answers:PredictorAnswers",
    "anomaly_events/1": "everlearn.anomaly.estimator:EventLog",
    "change_state/1": "everlearn.monitoring.kernels.page_hinkley:ChangeState",
    "column_scaling/1": "everlearn.base.scaling:Frame",
    "constraint_every/1": "everlearn.ppca.keep:Every",
    "constraint_on_change/1": "everlearn.ppca.keep:OnChange",
    "constraint_reference/1": "everlearn.ppca.state:Reference",
    "episode/1": "everlearn.agents.episode:Episode",
    "event_log/1": "everlearn.monitoring.kernels.event_log:MonitorState",
    "figmn_state/1": "everlearn.figmn.state:State",
    "figmn_warmup/1": "everlearn.figmn.state:Warmup",
    "forgetting_bank/1": "everlearn.forgetting.bank:BankState",
    "warmup_buffer/1": "everlearn.base.warmup:WarmupBuffer",
    "low_rank_components/1": "everlearn.low_rank.kernels.parts:Components",
    "low_rank_frame/1": "everlearn.low_rank.kernels.parts:Frame",
    "low_rank_model/1": "everlearn.low_rank.kernels.parts:Model",
    "low_rank_pending/1": "everlearn.low_rank.state:Pending",
    "low_rank_reservoir/1": "everlearn.low_rank.kernels.parts:Reservoir",
    "low_rank_room/1": "everlearn.low_rank.kernels.parts:Room",
    "low_rank_state/1": "everlearn.low_rank.state:State",
    "low_rank_waiting/1": "everlearn.low_rank.kernels.parts:Waiting",
    "mixture_background/1": "everlearn.mixture.kernels.parts:Background",
    "mixture_bank/1": "everlearn.mixture.adaptive:Bank",
    "mixture_components/1": "everlearn.mixture.kernels.parts:Components",
    "mixture_frame/1": "everlearn.mixture.kernels.parts:Frame",
    "mixture_model/1": "everlearn.mixture.state:Model",
    "mixture_pending/1": "everlearn.mixture.state:Pending",
    "mixture_reservoir/1": "everlearn.mixture.kernels.parts:Reservoir",
    "mixture_shape/1": "everlearn.mixture.kernels.parts:Shape",
    "mixture_state/1": "everlearn.mixture.state:State",
    "mixture_world/1": "everlearn.mixture.state:World",
    "natural_constraint/1": "everlearn.ppca.keep:NaturalConstraint",
    "online_em_state/1": "everlearn.ppca.state:State",
    "page_hinkley/1": "everlearn.monitoring.page_hinkley:PageHinkley",
    "power_schedule/1": "everlearn.ppca.schedules:PowerSchedule",
    "value_function_state/1": "everlearn.agents.value_function:State",
    "variational_paper_state/1": "everlearn.variational.state:PaperState",
    "variational_state/1": "everlearn.variational.state:State",
}
"""Classes that a file may name: a tag, which never changes, and where the class is found today ("module:class").

The number after the slash counts up when the fields of a class change their meaning.
"""
