{{- define "waltz.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "waltz.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "waltz.name" .) -}}
{{- end -}}

{{- define "waltz.selector" -}}
app.kubernetes.io/name: waltz-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "waltz.labels" -}}
{{ include "waltz.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "waltz.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
